"""Annotations in COCO's format: their images, classes and masks; one sentence for each defect."""

import json
from functools import partial

import numpy as np
import pytest

from pocketune.data import Loader, MaskOptions, has_test, load_splits, task_of

from .. import refusals
from .conftest import HEIGHT, WIDTH, masks_of

refusal = partial(refusals.refusal, val_fraction=0, longest=400)


def box(left, top, right, bottom):
    return [left, top, right, top, right, bottom, left, bottom]


def record(images=("a.png",), objects=(), categories=((3, "cat"), (1, "dog"), (9, "unused"))):
    """A file of annotations: the objects are (image, category, segmentation)."""
    return {
        "info": {"year": 2026},
        "images": [
            {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT}
            for number, name in enumerate(images, 10)
        ],
        "annotations": [
            {"id": number, "image_id": image, "category_id": category, "segmentation": outline}
            for number, (image, category, outline) in enumerate(objects)
        ],
        "categories": [{"id": number, "name": name} for number, name in categories],
    }


CAT, DOG = (10, 3, [box(2, 2, 22, 18)]), (10, 1, [box(4, 4, 8, 8), box(10, 4, 14, 8)])


class TestMasks:
    def test_small_objects_lie_on_large_ones_and_the_rest_is_background(self, set_of):
        path = set_of({"annotations.json": record(objects=[DOG, CAT])}, "a.png")
        splits = load_splits(path, val_fraction=0)
        assert splits.train.classes == ("background", "cat", "dog")
        (mask,) = masks_of(splits)
        expected = np.full((HEIGHT, WIDTH), "background")
        expected[2:18, 2:22] = "cat"
        expected[4:8, 4:8] = expected[4:8, 10:14] = "dog"
        assert (mask == expected).all()
        assert splits.train.labels["pixels"].tolist() == [
            [int((expected == name).sum()) for name in splits.train.classes]
        ]

    def test_crowds_as_run_lengths(self, set_of):
        runs = [5, 15] * WIDTH
        crowd = (10, 1, {"counts": runs, "size": [HEIGHT, WIDTH]})
        path = set_of({"annotations.json": record(objects=[crowd])}, "a.png")
        (mask,) = masks_of(load_splits(path, val_fraction=0))
        assert (mask[:5] == "background").all()
        assert (mask[5:] == "dog").all()

    def test_an_image_without_objects_is_all_background(self, set_of):
        path = set_of({"annotations.json": record(("a.png", "b.png"), [CAT])}, "a.png", "b.png")
        assert (masks_of(load_splits(path, val_fraction=0))[1] == "background").all()

    def test_an_ignored_background(self, set_of):
        path = set_of({"annotations.json": record(objects=[CAT, DOG])}, "a.png")
        splits = load_splits(path, val_fraction=0, masks=MaskOptions(ignore="background"))
        assert splits.train.classes == ("cat", "dog")

    def test_steps_read_them(self, set_of):
        path = set_of({"annotations.json": record(objects=[CAT, DOG])}, "a.png")
        loader = Loader(load_splits(path, val_fraction=0).train, size=16, batch=1, train=False)
        (batch,) = loader.epoch(0)
        assert set(np.unique(batch.labels[0].mask())) == {0, 1, 2}

    def test_a_changed_file_changes_every_mask(self, set_of):
        path = set_of({"annotations.json": record(objects=[CAT, DOG])}, "a.png")
        photos = load_splits(path, val_fraction=0).train
        stamp = photos.stamp(0, "a.png")
        (path / "annotations.json").write_text(json.dumps(record(objects=[DOG, CAT])) + " ")
        assert photos.stamp(0, "a.png") != stamp


class TestPlaces:
    @pytest.mark.parametrize(
        ("file", "image"),
        [
            ("annotations.json", "a.png"),
            ("annotations.json", "images/a.png"),
            ("set/annotations.json", "set/images/a.png"),
            ("annotations/instances_default.json", "images/a.png"),
            ("annotations/instances_default.json", "images/default/a.png"),
            ("annotations/instances_val2017.json", "val2017/a.png"),
            ("train/_annotations.coco.json", "train/a.png"),
        ],
    )
    def test_beside_their_file_or_in_a_folder_beside_it(self, set_of, pack, file, image):
        path = set_of({file: record(objects=[CAT, DOG])}, image)
        for each in (path, pack(path)):
            splits = load_splits(each, val_fraction=0)
            assert [*splits.train.names, *splits.val.names] == [image]

    @pytest.mark.parametrize(
        ("file", "image"),
        [
            ("export.json", "a.png"),
            ("result.json", "images/a.png"),
            ("annotations/train.json", "images/a.png"),
            ("annotations/train.json", "train/a.png"),
        ],
    )
    def test_a_file_of_any_name(self, set_of, file, image):
        path = set_of({file: record(objects=[CAT, DOG])}, image)
        for each in (path, path / file):
            splits = load_splits(each, val_fraction=0)
            assert [each.endswith(image) for each in splits.train.names] == [True]
            assert splits.train.classes == ("background", "cat", "dog")

    def test_parts_are_named_by_their_files(self, set_of):
        files = {
            f"annotations/{part}.json": record(objects=[CAT, DOG]) for part in ("train", "val")
        }
        path = set_of({**files, "info.json": {"year": 2026}}, "train/a.png", "val/a.png")
        splits = load_splits(path)
        assert (list(splits.train.names), list(splits.val.names)) == (
            ["train/a.png"],
            ["val/a.png"],
        )

    def test_a_table_beside_them_is_preferred(self, set_of):
        path = set_of({"export.json": record(objects=[CAT, DOG])}, "a.png", "b.png")
        (path / "labels.csv").write_text("file,label\na.png,cat\nb.png,dog\n")
        assert task_of(path).name == "classification"

    def test_parts_may_number_their_categories_differently(self, set_of):
        other = record(objects=[(10, 7, CAT[2])], categories=((7, "cat"),))
        path = set_of(
            {"train/annotations.json": record(objects=[CAT, DOG]), "test/annotations.json": other},
            "train/a.png",
            "test/a.png",
        )
        splits = load_splits(path, test="validate")
        assert (list(splits.train.names), list(splits.val.names)) == (
            ["train/a.png"],
            ["test/a.png"],
        )
        assert splits.val.labels["pixels"][0, 1] == 20 * 16
        assert has_test(path)

    @pytest.mark.parametrize("other", ["val", "test", "all"])
    def test_an_image_is_in_one_part(self, set_of, other):
        files = (f"annotations/instances_{part}.json" for part in ("train", other))
        path = set_of({file: record(objects=[CAT]) for file in files}, "images/a.png")
        message = refusal(path)
        assert "list images/a.png twice, with different labels or splits; remove it" in message
        assert "instances_train.json" in message and f"instances_{other}.json" in message

    def test_masks_are_used_where_there_are_masks(self, set_of):
        files = {"annotations.json": record(objects=[CAT])}
        path = set_of(files, "images/a.png", "masks/a.png")
        assert "a picture of more than 256 colors" in refusal(path)


class TestRefused:
    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"objects": []}, "annotations.json has no objects"),
            ({"objects": [(10, 3, [])]}, r"object 0 without an outline (it is a box)"),
            ({"objects": [(10, 3, [[1, 2, 3]])]}, "a polygon is not a list of x and y"),
            ({"objects": [(10, 3, [[float("nan")] * 6])]}, "a polygon is not a list of x and y"),
            ({"objects": [(10, 3, {"counts": "o"})]}, "run-length code is damaged"),
            ({"objects": [(99, 3, CAT[2])]}, "an object of the image 99, which it does not list"),
            ({"objects": [(10, 4, CAT[2])]}, "an object of the category 4"),
            ({"objects": [(None, 4, CAT[2])]}, "a record without image_id"),
            ({"images": ("a.png", "a.png")}, "the image a.png twice"),
            ({"images": (7,)}, "without a file_name"),
            ({"categories": ((3, " "),)}, "the category 3 without a name"),
            (
                {
                    "categories": [(number, f"{number}") for number in range(300)],
                    "objects": [(10, number, CAT[2]) for number in range(300)],
                },
                "objects of 300 categories",
            ),
        ],
    )
    def test_records(self, set_of, changed, reason):
        path = set_of({"annotations.json": record(**{"objects": [CAT, DOG], **changed})}, "a.png")
        assert reason in refusal(path)

    @pytest.mark.parametrize("text", ["", "{", "[1]", '{"images": [1]}', "{" * 99_999])
    def test_damaged_files(self, tree, text):
        path = tree({"annotations.json": text, "a.png": 0})
        assert refusal(path).startswith("annotations.json is damaged: ")

    def test_another_size_than_the_image(self, set_of):
        wrong = record(objects=[CAT, DOG])
        wrong["images"][0]["width"] = WIDTH + 1
        path = set_of({"annotations.json": wrong}, "a.png")
        assert f"has {WIDTH + 1} x {HEIGHT} pixels and its image" in refusal(path)

    def test_a_code_of_another_size_and_missing_images_are_skipped(self, set_of):
        short = (11, 3, {"counts": [0, 5]})
        names = ("a.png", "b.png", "c.png")
        path = set_of({"annotations.json": record(names, [CAT, DOG, short])}, "a.png", "b.png")
        splits = load_splits(path, val_fraction=0)
        assert [each.name for each in splits.skipped] == ["b.png", "c.png"]
        assert "not of 24 x 20 pixels" in splits.skipped[0].reason

    def test_an_image_of_too_many_pixels_is_never_drawn(self, set_of):
        large = record(objects=[CAT, DOG])
        large["images"][0].update(width=10**8, height=10**8)
        path = set_of({"annotations.json": large}, "a.png")
        assert "are too many" in refusal(path)

    def test_class_folders_for_a_kit_of_images_may_lie_beside_annotations(self, set_of):
        files = {"annotations.json": record(("cats/a.png",), [CAT, DOG])}
        path = set_of(files, "cats/a.png", "dogs/b.png")
        assert load_splits(path, val_fraction=0, task="classification").classes == ("cats", "dogs")
        assert load_splits(path, val_fraction=0).classes == ("background", "cat", "dog")

    def test_a_kit_for_images(self, set_of):
        path = set_of({"annotations.json": record(objects=[CAT, DOG])}, "a.png")
        assert "has masks" in refusal(path, task="classification")
