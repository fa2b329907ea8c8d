"""Which files are examples, by their names alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.data.examples import Example, Examples
from pocketune.data.labels.layouts import in_class_folders, in_use, wrapper
from pocketune.data.names import Names


class TestFolders:
    @pytest.mark.parametrize(
        ("names", "examples"),
        [
            (["a/1", "b/2"], [("a/1", "a", None), ("b/2", "b", None)]),
            (["a/x/y/1", "b/2"], [("a/x/y/1", "a", None), ("b/2", "b", None)]),
            (["root/a/1", "root/b/2"], [("root/a/1", "a", None), ("root/b/2", "b", None)]),
            (["TRAIN/a/1", "Val/a/2"], [("TRAIN/a/1", "a", "train"), ("Val/a/2", "a", "val")]),
            (["Training/a/1", "Testing/a/2"], [("Training/a/1", "a", "train"),
                                               ("Testing/a/2", "a", "test")]),
            (["training/a/1", "valid/a/2"], [("training/a/1", "a", "train"),
                                             ("valid/a/2", "a", "val")]),
            (["val/1", "test/2"], [("val/1", "val", None), ("test/2", "test", None)]),
            (["train/1", "cat/2"], [("train/1", "train", None), ("cat/2", "cat", None)]),
            (["r/train/a/1", "r/test/a/2"], [("r/train/a/1", "a", "train"),
                                             ("r/test/a/2", "a", "test")]),
        ],
    )  # fmt: skip
    def test_the_class_is_the_first_folder_below_the_part(self, names, examples) -> None:
        assert in_class_folders(Names(names)) == ([Example(*each) for each in examples], [])

    def test_what_lies_in_no_class_or_no_part_is_outside(self) -> None:
        examples, outside = in_class_folders(
            Names(["train/a/1", "val/a/2", "train/loose", "other/b/3", "4"])
        )
        assert [example.name for example in examples] == ["train/a/1", "val/a/2"]
        assert outside == ["train/loose", "other/b/3", "4"]

    @pytest.mark.parametrize(
        ("notes", "label"),
        [
            (["README"], "a"),
            (["README", "r/LICENSE"], "a"),
            (["labels.csv"], "r"),
            (["labels.csv", "r/LICENSE"], "r"),
            (["r/s/1"], "a"),
            (["README", "r/s/1"], "a"),
            (["README", "r/labels.csv"], "s"),
        ],
    )
    def test_notes_may_lie_beside_the_folder_around_the_classes(self, notes, label) -> None:
        """A table may tell the classes instead."""
        examples, _ = in_class_folders(Names([*notes, "r/s/a/2", "r/s/b/3"]))
        assert label in {example.label for example in examples}

    def test_nothing(self) -> None:
        assert in_class_folders(Names()) == ([], [])

    @given(
        st.lists(
            st.text(st.sampled_from("ab/é"), min_size=1, max_size=6).filter(
                lambda name: "//" not in name and name.strip("/") == name
            ),
            unique=True,
        )
    )
    def test_every_file_is_an_example_or_outside(self, names: list[str]) -> None:
        examples, outside = in_class_folders(Names(names))
        assert sorted([*(example.name for example in examples), *outside]) == sorted(names)
        assert all(example.label for example in examples)


@pytest.mark.parametrize(
    ("names", "prefix"),
    [
        (["r/a/1", "r/b/2"], "r/"),
        (["r/s/a/1", "r/s/b/2"], "r/s/"),
        (["a/1", "b/2"], ""),
        (["cats/1", "cats/2"], ""),  # the only class
        (["r/a/1", "r/2"], "r/"),
        (["r/cats/1", "r/cats/2"], "r/"),
        ([], ""),
    ],
)
def test_the_folder_around_everything(names: list[str], prefix: str) -> None:
    assert wrapper(Names(names)) == prefix


def test_the_parts_that_are_in_use() -> None:
    train, val, test = (Example(part, "a", part) for part in ("train", "val", "test"))
    undivided = Examples([Example("1", "a")])
    for listed, hold_out, validate in (
        ([train, val, test], "train val", "train val"),
        ([train, test], "train", "train test"),
        ([train, val], "train val", "train val"),
        ([test], "", "test"),
    ):
        examples = Examples(listed)
        assert [each.part for each in in_use(examples)] == hold_out.split()
        assert [each.part for each in in_use(examples, "validate")] == validate.split()
        only = [each for each in examples if each.part == "test"]
        assert in_use(examples, "only") == only
    assert in_use(undivided) == in_use(undivided, "validate") == undivided
    assert in_use(undivided, "only") == []
