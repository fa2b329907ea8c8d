"""The names of the values of masks, and values that do not count."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pocketune.data import MaskOptions
from pocketune.data.masks.values import parse_names, value_names
from pocketune.errors import PocketuneError
from pocketune.tasks.segmentation import Mask


def test_lines():
    assert parse_names(b"\xef\xbb\xbfsky\r\n road \r\n\r\n", "c.txt") == {0: "sky", 1: "road"}
    assert parse_names(b"0=background\n255 = object", "c.txt") == {
        0: "background",
        255: "object",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "c.txt is empty"),
        (b"sky\n\nroad", "in line 2"),
        (b"sky\nsky", "has 'sky' or its value 1 twice"),
        (b"1=a\nb", "has 'b' or its value 1 twice"),
        (b"256=a", "no name of a value of 0 to 255 in line 1"),
        (b"0=", "in line 1"),
        (b"9" * 5000 + b"\n" + b"9" * 5000, "twice"),
        (b"\xff\xfe", "not a list of names in UTF-8"),
    ],
)
def test_invalid_names(text, message):
    with pytest.raises(PocketuneError, match=message):
        parse_names(text, "c.txt")


def test_an_object_of_255_can_be_named():
    masks = [Mask("a.png", ((0, 5), (255, 5)))]
    options = MaskOptions(ignore="none", class_names="0=ground,255=object")
    titles = value_names(masks, options, "photos")
    assert (titles[0], titles[255], set(titles[1:255])) == ("ground", "object", {""})


@given(
    counts=st.dictionaries(st.integers(0, 254), st.integers(1, 99), min_size=1, max_size=40),
    ignored=st.sets(st.integers(0, 255), max_size=5),
)
def test_each_value_that_counts_is_its_own_name(counts, ignored):
    given = ",".join(map(str, sorted(ignored))) or None
    masks = [Mask("a.png", tuple(counts.items()))]
    assume(counts.keys() - ignored)
    titles = value_names(masks, MaskOptions(ignore=given), "photos")
    kept = counts.keys() - ignored
    assert {v: t for v, t in enumerate(titles) if t} == {v: str(v) for v in kept}


def test_a_value_of_thousands_of_digits_is_none():
    masks = [Mask("a.png", ((0, 5), (1, 5)))]
    with pytest.raises(PocketuneError, match="is neither a value of 0 to 255 nor a class"):
        value_names(masks, MaskOptions(ignore="9" * 5000), "photos")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("sky\nroad", "0=sky,1=road"),
        ("3=sky", "3=sky,"),
        ("0=sky\n254=car = red", "0=sky,254=car = red"),
    ],
)
def test_names_in_a_file_are_kept_without_it(text, kept, tmp_path):
    (tmp_path / "names.txt").write_text(text)
    given = MaskOptions(class_names=str(tmp_path / "names.txt"))
    options = given.with_names()
    assert options == MaskOptions(class_names=kept) == options.with_names()
    masks = [Mask("a.png", tuple((value, 5) for value in parse_names(text.encode(), "a")))]
    assert value_names(masks, options, "p") == value_names(masks, given, "p")


def test_names_with_commas_stay_in_their_file(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("sky, blue\nroad")
    monkeypatch.chdir(tmp_path)
    options = MaskOptions(class_names="names.txt").with_names()
    assert options.class_names == str(tmp_path / "names.txt")
    assert MaskOptions(ignore="0").with_names() == MaskOptions(ignore="0")


def test_a_class_that_is_called_255_is_not_ignored_by_default():
    masks = [Mask("a.png", ((0, 5), (1, 5)))]
    titles = value_names(masks, MaskOptions(), "photos", ("classes.txt", b"0\n255\n"))
    assert titles[:3] == ("0", "255", "")


class TestPredicted:
    """Masks that a run has written, read with the options that it was trained with."""

    @pytest.mark.parametrize("options", [{"ignore": "0"}, {"class_names": "0=sky,1=road,2=car"}])
    def test_they_have_the_classes_of_the_run(self, options):
        masks = [Mask("a.png", ((0, 5), (1, 5)))]
        given = MaskOptions(**options, inherited=("road", "car"))
        titles = value_names(masks, given, "photos", ("classes.txt", b"road\ncar\n"))
        assert titles[:2] == ("road", "car")

    def test_the_last_class_may_be_ignored(self):
        masks = [Mask("a.png", ((0, 5), (1, 5), (2, 5)))]
        given = MaskOptions(ignore="void", inherited=("road", "car"))
        titles = value_names(masks, given, "photos", ("classes.txt", b"road\ncar\nvoid\n"))
        assert titles[:3] == ("road", "car", "")

    @pytest.mark.parametrize("listed", [b"road\ncar\n", b"car\nroad\n", b"\xff"])
    def test_others_are_read_as_those_of_the_run(self, listed):
        masks = [Mask("a.png", ((0, 5), (1, 5), (2, 5)))]
        names = "0=sky,1=road,2=car"
        given = MaskOptions(ignore="sky", class_names=names, inherited=("road", "car"))
        titles = value_names(masks, given, "photos", ("classes.txt", listed))
        assert titles[:3] == ("", "road", "car")
