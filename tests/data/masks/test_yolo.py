"""Folders of YOLO: their images, classes and masks; one sentence for each defect."""

from functools import partial

import numpy as np
import pytest
from PIL import Image

from pocketune.data import has_test, load_splits
from pocketune.data.masks.yolo_names import parse_names
from pocketune.data.prepare import prepare

from .. import refusals
from .conftest import HEIGHT, WIDTH, masks_of

refusal = partial(refusals.refusal, val_fraction=0, longest=400)

NAMES = "train: ../train/images\nnc: 2\nnames: ['cat', 'dog']\n"


def polygon(number, left, top, right, bottom):
    """A line of a label: a rectangle, in pixels."""
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    sides = " ".join(f"{x / WIDTH:.6f} {y / HEIGHT:.6f}" for x, y in corners)
    return f"{number} {sides}\n"


CAT, DOG = polygon(0, 2, 2, 22, 18), polygon(1, 4, 4, 8, 8)


class TestMasks:
    def test_small_polygons_lie_on_large_ones(self, tree, pack):
        path = tree({"images/a.png": 1, "labels/a.txt": DOG + "\n" + CAT, "data.yaml": NAMES})
        expected = np.full((HEIGHT, WIDTH), "background")
        expected[2:18, 2:22] = "cat"
        expected[4:8, 4:8] = "dog"
        for each in (path, "", "set/"):
            place = pack(path, each) if isinstance(each, str) else each
            splits = load_splits(place, val_fraction=0)
            assert splits.train.classes == ("background", "cat", "dog")
            (mask,) = masks_of(splits)
            assert (mask == expected).all()

    def test_an_empty_label_is_background_and_an_image_without_one_is_left_out(self, tree):
        labels = {"labels/a.txt": CAT, "labels/b.txt": ""}
        images = {f"images/{name}.png": 1 for name in "abc"}
        splits = load_splits(tree({**labels, **images, "data.yaml": NAMES}), val_fraction=0)
        assert splits.train.names == ("images/a.png", "images/b.png")
        assert (masks_of(splits)[1] == "background").all()
        (skipped,) = splits.skipped
        assert skipped.name == "images/c.png"
        assert skipped.reason.startswith("it has no label")

    def test_fractions_of_the_upright_photo(self, tree, encoded, noise):
        exif = Image.Exif()
        exif[0x0112] = 6  # turned by a quarter
        photo = encoded(noise(1, HEIGHT, WIDTH), "JPEG", exif=exif)
        path = tree({"images/a.jpg": photo, "labels/a.txt": CAT + DOG, "data.yaml": NAMES})
        (mask,) = masks_of(load_splits(path, val_fraction=0))
        assert (mask == "cat").sum() == 20 * 16 - 4 * 4

    def test_a_changed_label_changes_its_mask(self, tree):
        path = tree({"images/a.png": 1, "labels/a.txt": CAT, "data.yaml": NAMES})
        photos = load_splits(path, val_fraction=0).train
        stamp = photos.stamp(0, "images/a.png")
        (path / "labels" / "a.txt").write_text(DOG + CAT)
        assert photos.stamp(0, "images/a.png") != stamp


def test_small_copies_have_the_same_labels(tree, tmp_path, encoded, noise):
    photo = encoded(noise(1, 2 * WIDTH, 2 * HEIGHT))
    path = tree({"images/a.png": photo, "labels/a.txt": CAT + DOG, "data.yaml": NAMES})
    assert prepare(path, tmp_path / "small", size=HEIGHT).skipped == ()
    (mask,) = masks_of(load_splits(tmp_path / "small", val_fraction=0))
    assert (mask == "cat").sum() == 20 * 16 - 4 * 4


class TestPlaces:
    @pytest.mark.parametrize("order", ["{0}/{1}", "{1}/{0}"])
    @pytest.mark.parametrize("val", ["val", "valid"])
    def test_parts(self, tree, order, val):
        files: dict[str, int | str] = {"data.yaml": NAMES}
        for part in ("train", val, "test"):
            files[order.format(part, "images") + "/a.png"] = 1
            files[order.format(part, "labels") + "/a.txt"] = CAT + DOG
        path = tree(files)
        splits = load_splits(path)
        assert [len(splits.train), len(splits.val)] == [1, 1]
        assert val in splits.val.names[0]
        assert has_test(path)

    def test_names_in_other_files(self, tree):
        files = {"images/a.png": 1, "labels/a.txt": CAT}
        for name, text in (("x.yml", "names:\n  0: cat\n"), ("labels/classes.txt", "cat\n")):
            path = tree({**files, name: text}, name.replace("/", "_"))
            assert load_splits(path, val_fraction=0).classes == ("background", "cat")

    @pytest.mark.parametrize("text", ["task: segment\nmode: train", "names: [dog]"])
    def test_the_usual_file_of_names_comes_before_others(self, tree, text):
        files = {"images/a.png": 1, "labels/a.txt": CAT, "args.yaml": text, "data.yaml": NAMES}
        assert "cat" in load_splits(tree(files), val_fraction=0).classes

    def test_a_file_without_names_is_passed_over(self, tree):
        files = {"images/a.png": 1, "labels/a.txt": CAT, "data.yaml": "nc: 1", "x.yaml": NAMES}
        assert "cat" in load_splits(tree(files), val_fraction=0).classes

    def test_other_files_are_passed_over(self, tree):
        files = {"images/a.png": 1, "images/a.json": "{}", "labels/a.txt": CAT, "labels/a.npy": ""}
        path = tree({**files, "data.yaml": NAMES, "images/classes.txt": "x"})
        assert load_splits(path, val_fraction=0).train.names == ("images/a.png",)

    def test_masks_are_used_where_there_are_masks(self, tree):
        files = {"images/a.png": 1, "labels/a.txt": CAT, "masks/a.png": 2, "data.yaml": NAMES}
        assert "a picture of more than 256 colors" in refusal(tree(files))


class TestRefused:
    @pytest.mark.parametrize(
        ("label", "reason"),
        [
            ("0 0.5 0.5 0.1 0.1\n", "labels/a.txt begins with a box, but masks are drawn from"),
            (f"{CAT}0 0.5 0.5 0.1 0.1\n", "in line 2 a box"),
            ("0 0.5 0.5\n", "in line 1 no corners as fractions of the sides"),
            ("0 10 10 20 10 20 20\n", "in line 1 no corners as fractions of the sides"),
            ("0 0.1 0.1 0.2\n", "in line 1 no class and corners of a polygon"),
            ("cat 0.1 0.1 0.2\n", "in line 1 no class and corners of a polygon"),
            ("0 nan 0 0 0 0 0\n", "in line 1 no class and corners of a polygon"),
            (CAT.replace("0", "2", 1), "in line 1 the class 2, which has no name"),
            (CAT.replace("0", "0.5", 1), "in line 1 the class 0.5, which has no name"),
        ],
    )
    def test_labels(self, tree, label, reason):
        path = tree({"images/a.png": 1, "labels/a.txt": label, "data.yaml": NAMES})
        assert reason in refusal(path)

    def test_names(self, tree):
        files = {"images/a.png": 1, "labels/a.txt": CAT}
        message = refusal(tree(files))
        assert "labels of YOLO without the names of their classes; add data.yaml" in message
        assert refusal(tree({**files, "data.yaml": "nc: 2"})) == message
        message = refusal(tree({**files, "data.yaml": "names: 3"}))
        assert message.startswith("data.yaml is damaged: its names are neither")
        many = f"names: {[str(number) for number in range(300)]}"
        assert "of 300 categories" in refusal(tree({**files, "data.yaml": many}))

    def test_a_kit_for_images(self, tree):
        files = {"images/a.png": 1, "labels/a.txt": CAT, "data.yaml": NAMES}
        assert "has masks" in refusal(tree(files), task="attributes")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nc: 2\nnames: ['cat', dog]", ["cat", "dog"]),
        ('names: [ \'a, b\', "c\\"d",\n  it is ]  # all\nnc: 3', ["a, b", 'c"d', "it is"]),
        ("names:\n- cat\n- big dog\nroboflow:\n- x", ["cat", "big dog"]),
        ("names:\n  0: cat # small\n\n  1: 'do''g #1'\nnc: 2", ["cat", "do'g #1"]),
        ("# names: [x]\npath: names:\nnames: {0: a, 1: 'b'}", ["a", "b"]),
        ("names: [a, b,]", ["a", "b"]),
    ],
)
def test_names(text, names):
    assert parse_names(text) == dict(enumerate(names))


def test_numbers_of_names():
    assert parse_names("names:\n  3: cat\n  7: dog\n") == {3: "cat", 7: "dog"}


@pytest.mark.parametrize(
    "text",
    [
        "names:",
        "names: 3",
        "names: []",
        "names: [a, b",
        "names: {}",
        "names: ['a]",
        "names: [,]",
    ],
)
def test_names_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="names"):
        parse_names(text)


def test_a_file_without_the_key():
    assert parse_names("nc: 2\n") == parse_names("") == {}
