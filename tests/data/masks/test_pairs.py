"""Folders of images and masks, tables of both, and VOC's lists."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pocketune.data import has_test, load_splits
from pocketune.data.masks.pairs import read_pairs
from pocketune.data.names import Names
from pocketune.data.sources import FolderSource
from pocketune.errors import PocketuneError

from .. import refusals

refusal = partial(refusals.refusal, val_fraction=0)


@pytest.fixture
def pairs(tree, encoded):
    """`pairs("images/a.png masks/a.png", ...)`: images and masks at these paths."""
    pixels = np.repeat(np.arange(24) % 2, 20).reshape(24, 20).T.astype(np.uint8)
    mask = encoded(Image.fromarray(pixels))

    def write(*names: str, **texts: str):
        files: dict[str, bytes | int | str] = {}
        for number, name in enumerate(" ".join(names).split()):
            is_mask = "mask" in name.lower() or "segmentation" in name.lower()
            files[name] = mask if is_mask else number
        return tree({**files, **{key.replace("__", "."): text for key, text in texts.items()}})

    return write


def split(path, **options):
    splits = load_splits(path, **options)
    pairs = [
        [(n, str(m)) for n, m in zip(part.names, part.labels["mask"], strict=True)]
        for part in (splits.train, splits.val)
    ]
    return tuple(pairs)


class TestFolders:
    def test_equal_names(self, pairs):
        path = pairs("images/a.png images/deep/b.jpg masks/a.png masks/deep/b.png readme.txt")
        train, val = split(path, val_fraction=0)
        assert train == [("images/a.png", "masks/a.png"), ("images/deep/b.jpg", "masks/deep/b.png")]
        assert not val

    @pytest.mark.parametrize("tail", ["_mask", "-seg", "_L"])
    def test_masks_that_all_end_alike(self, pairs, tail):
        names = [f"images/{name}.png masks/{name}{tail}.png" for name in ("a", "a_b")]
        train, _ = split(pairs(*names), val_fraction=0)
        assert train == [(f"images/{n}.png", f"masks/{n}{tail}.png") for n in ("a", "a_b")]

    def test_masks_that_end_differently(self, pairs):
        path = pairs("images/a.png images/b.png masks/a_mask.png masks/b_seg.png")
        assert "has no mask of the same name" in refusal(path)

    @pytest.mark.parametrize("order", ["{0}/{1}", "{1}/{0}"])
    def test_parts_above_or_below(self, pairs, order):
        names = [
            order.format(part, kind) + f"/{part}.png"
            for part in ("train", "val", "test")
            for kind in ("Images", "Masks")
        ]
        path = pairs(*names)
        (train, val) = split(path)
        assert [len(train), len(val)] == [1, 1]
        assert "val" in val[0][0]
        assert has_test(path)
        assert "test" in load_splits(path, test="only").val.names[0]

    def test_a_single_folder_around_all(self, pairs):
        train, _ = split(pairs("set/images/a.png set/masks/a.png"), val_fraction=0)
        assert train == [("set/images/a.png", "set/masks/a.png")]

    @pytest.mark.parametrize("file", ["classes.txt", "masks/labels.txt"])
    def test_names_of_classes_beside_or_among_the_masks(self, pairs, file):
        path = pairs("images/a.png masks/a.png")
        (path / file).write_text("even\nodd\n")
        assert load_splits(path, val_fraction=0).classes == ("even", "odd")

    def test_a_random_division(self, pairs):
        names = [f"{kind}/{i}.png" for i in range(10) for kind in ("images", "masks")]
        train, val = split(pairs(*names))
        assert [len(train), len(val)] == [8, 2]

    def test_other_files_are_passed_over(self, pairs):
        path = pairs("images/a.png masks/a.png")
        for name in ("images/notes.txt", "masks/Thumbs.db", "images/a.json", "masks/a.xml"):
            (path / name).write_bytes(b"no image")
        assert split(path, val_fraction=0)[0] == [("images/a.png", "masks/a.png")]

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ("images/b.png", "images/b.png in .* has no mask of the same name; add the mask"),
            ("images/b.png images/c.png", "images/b.png in .* has no mask .*, as 1 more"),
            ("masks/b.png", "masks/b.png in .* has no image of the same name; add the image"),
            ("images/a.jpg", r"images/a.jpg and images/a.png, which would share a partner"),
        ],
    )
    def test_missing_partners(self, pairs, names, message):
        import re

        assert re.search(message, refusal(pairs("images/a.png masks/a.png", names)))


class TestTables:
    def test_a_table_beside_folders(self, pairs):
        path = pairs(
            "x/images/a.png x/images/b.png x/masks/a.png x/masks/b.png",
            index__csv="image,mask,split,source\n"
            "x/images/a.png,x/masks/a.png,train,s\nx/images/b.png,x/masks/b.png,val,s\n",
            classes__txt="even\nodd\n",
        )
        (train, val) = split(path)
        assert (train, val) == (
            [("x/images/a.png", "x/masks/a.png")],
            [("x/images/b.png", "x/masks/b.png")],
        )
        assert split(path / "index.csv") == (train, val)
        assert load_splits(path).classes == ("even", "odd")

    def test_a_table_of_something_else_is_left_alone(self, pairs):
        path = pairs("images/a.png masks/a.png", meta__csv="image,weather\nimages/a.png,rain\n")
        assert len(split(path, val_fraction=0)[0]) == 1

    def test_paths_are_relative_to_the_table(self, pairs):
        path = pairs("t/i/a.png t/mask/a.png")
        (path / "t" / "t.csv").write_text("image;mask\ni/a.png;mask\\a.png\n")
        assert split(path / "t" / "t.csv", val_fraction=0)[0] == [("i/a.png", "mask/a.png")]

    def test_a_mask_that_is_missing(self, pairs):
        path = pairs("a.png b.png mask.png", t__csv="image,mask\na.png,mask.png\nb.png,no.png\n")
        splits = load_splits(path / "t.csv", val_fraction=0)
        assert splits.skipped == (("b.png", "its mask no.png: no such file"),)


class TestVoc:
    names = (
        "VOC2012/JPEGImages/a.jpg VOC2012/JPEGImages/b.jpg VOC2012/JPEGImages/c.jpg "
        "VOC2012/SegmentationClass/a.png VOC2012/SegmentationClass/b.png "
        "VOC2012/SegmentationObject/a.png VOC2012/Annotations/a.xml"
    )

    def lists(self, path, **lists: str):
        folder = path / "VOC2012/ImageSets/Segmentation"
        folder.mkdir(parents=True)
        for name, text in lists.items():
            (folder / f"{name}.txt").write_text(text)
        return path

    def test_lists(self, pairs):
        path = self.lists(pairs(self.names), train="a\n", val="b\n", trainval="a\nb\n")
        (train, val) = split(path)
        assert train == [("VOC2012/JPEGImages/a.jpg", "VOC2012/SegmentationClass/a.png")]
        assert val[0][0] == "VOC2012/JPEGImages/b.jpg"

    def test_names_may_have_spaces(self, pairs):
        path = self.lists(pairs(self.names), train="my a\nmy b\nmy a\n")
        for file in ("JPEGImages/a.jpg", "SegmentationClass/b.png", "JPEGImages/b.jpg"):
            place = path / "VOC2012" / file
            place.rename(place.with_name(f"my {place.name}"))
        place = path / "VOC2012" / "SegmentationClass" / "a.png"
        place.rename(place.with_name("my a.png"))
        assert len(split(path, val_fraction=0)[0]) == 2

    def test_one_list(self, pairs):
        path = self.lists(pairs(self.names), trainval="a\nb\n")
        assert len(split(path, val_fraction=0)[0]) == 2

    @pytest.mark.parametrize("other", ["val", "test"])
    def test_without_a_list_to_train_on_it_is_what_the_others_leave(self, pairs, other):
        path = self.lists(pairs(self.names), trainval="a\nb\n", **{other: "b\n"})
        (train, val) = split(path, test="validate")
        assert train == [("VOC2012/JPEGImages/a.jpg", "VOC2012/SegmentationClass/a.png")]
        assert val[0][0] == "VOC2012/JPEGImages/b.jpg"

    @pytest.mark.parametrize("other", ["val", "test"])
    def test_a_photo_to_train_on_is_in_no_other_list(self, pairs, other):
        message = refusal(self.lists(pairs(self.names), train="a\nb\n", **{other: "b\n"}))
        assert "train.txt and " in message and f"{other}.txt list " in message
        assert "b.jpg twice, with different labels or splits" in message

    def test_a_list_of_any_size_is_not_read(self, pairs, monkeypatch):
        path = self.lists(pairs(self.names), train="a\n" * 100)
        monkeypatch.setattr("pocketune.data.labels.lists._LARGEST", 100)
        assert "train.txt is larger than" in refusal(path)

    def test_without_lists_images_with_masks_count(self, pairs):
        assert len(split(pairs(self.names), val_fraction=0)[0]) == 2

    def test_a_listed_image_without_a_mask(self, pairs):
        path = self.lists(pairs(self.names), train="a\nc\n")
        assert "train.txt lists c, which has no mask" in refusal(path)


words = st.sampled_from(
    [
        "images",
        "masks",
        "Masks",
        "train",
        "val",
        "test",
        "a",
        "b",
        "JPEGImages",
        "SegmentationClass",
    ]
)
files = st.tuples(st.lists(words, max_size=3), st.sampled_from(["1.png", "1.jpg", "2.png"]))


@given(st.sets(files.map(lambda file: "/".join([*file[0], file[1]])), min_size=1, max_size=12))
def test_any_tree_is_read_or_refused(names):
    """Each image has one mask, and no file is both; otherwise the tree is refused, or no layout."""
    try:
        found = read_pairs(Names(sorted(names)), FolderSource(Path("nowhere")), "photos")
    except PocketuneError:
        found = None
    if found is not None:
        images = [example.name for example in found]
        masks = [example.label.name for example in found]
        assert len(set(images) | set(masks)) == len(images) + len(masks)
        assert set(images) | set(masks) <= names


class TestOtherTasks:
    @pytest.mark.parametrize("task", ["classification", "attributes"])
    def test_masks_for_another_kit(self, pairs, task):
        message = refusal(pairs("images/a.png masks/a.png"), task=task)
        assert "has masks, which give each pixel a class" in message

    def test_a_table_of_masks_for_another_kit(self, pairs):
        path = pairs("a.png mask.png", t__csv="image,mask\na.png,mask.png\n") / "t.csv"
        for task in ("classification", "attributes"):
            assert "its first line has image, mask" in refusal(path, task=task)

    def test_classes_for_a_kit_of_masks(self, photos):
        message = refusal(photos(cats=2, dogs=2), task="segmentation")
        assert "gives each image a class by its folder, but masks are needed" in message

    def test_a_table_of_classes_for_a_kit_of_masks(self, tree):
        path = tree({"a.png": 0, "t.csv": "file,label\na.png,cat\n"}) / "t.csv"
        assert "needs the columns image and mask" in refusal(path, task="segmentation")
