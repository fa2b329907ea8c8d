"""Files of labelme: their images, classes and masks; one sentence for each defect."""

import json
import tracemalloc
from functools import partial

import numpy as np
import pytest

from pocketune.data import has_test, load_splits
from pocketune.errors import PocketuneError

from .. import refusals
from .conftest import HEIGHT, WIDTH, masks_of

refusal = partial(refusals.refusal, val_fraction=0, longest=400)


def shape(label, points, kind="polygon"):
    return {"label": label, "points": points, "shape_type": kind, "group_id": None}


CAT = shape("cat", [[2, 2], [22, 2], [22, 18], [2, 18]])
DOG = shape("dog", [[8, 8], [4, 4]], "rectangle")


def record(*shapes, image="a.png", **changes):
    sides = {"imageHeight": HEIGHT, "imageWidth": WIDTH}
    start = {"version": "5.5.0", "flags": {"x": False}, "shapes": list(shapes), "imagePath": image}
    return {**start, "imageData": "aGk=", **sides, **changes}


class TestMasks:
    def test_small_shapes_lie_on_large_ones(self, set_of, pack):
        path = set_of({"a.json": record(DOG, CAT)}, "a.png")
        expected = np.full((HEIGHT, WIDTH), "background")
        expected[2:18, 2:22] = "cat"
        expected[4:8, 4:8] = "dog"
        for each in (path, pack(path)):
            splits = load_splits(each, val_fraction=0)
            assert splits.train.classes == ("background", "cat", "dog")
            (mask,) = masks_of(splits)
            assert (mask == expected).all()

    def test_circles(self, set_of):
        circle = shape("sun", [[12, 10], [12, 15]], "circle")
        (mask,) = masks_of(load_splits(set_of({"a.json": record(circle)}, "a.png"), val_fraction=0))
        rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
        distance = np.hypot(rows - 10, columns - 12)
        assert (mask[distance < 4.9] == "sun").all()
        assert (mask[distance > 5] == "background").all()

    def test_an_image_without_shapes_is_background(self, set_of):
        files = {"a.json": record(CAT), "b.json": record(image="b.png")}
        masks = masks_of(load_splits(set_of(files, "a.png", "b.png"), val_fraction=0))
        assert (masks[1] == "background").all()

    def test_a_photo_without_a_file_is_left_out_and_named(self, set_of):
        splits = load_splits(set_of({"a.json": record(CAT)}, "a.png", "b.png"), val_fraction=0)
        assert splits.train.names == ("a.png",)
        (skipped,) = splits.skipped
        assert skipped.name == "b.png" and skipped.reason.startswith("it has no label")

    def test_a_size_that_is_not_the_photo_s_is_corrected_in_the_file(self, set_of):
        path = set_of({"a.json": record(CAT, imageWidth=WIDTH + 1)}, "a.png")
        assert refusal(path).endswith("; correct the size in the annotations")

    def test_the_photo_within_is_never_in_memory(self, set_of):
        photo = ("a" * (1 << 16) + '\\"') * 128
        files = {f"{i}.json": record(CAT, image="a.png", imageData=photo) for i in range(2)}
        path = set_of(files, "0.png", "1.png")
        for name in files:
            (path / name).write_text((path / name).read_text().replace("a.png", name[0] + ".png"))
        load_splits(path, val_fraction=0)
        tracemalloc.start()
        load_splits(path, val_fraction=0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < len(photo) / 2


class TestPlaces:
    @pytest.mark.parametrize(
        ("file", "named", "image"),
        [
            ("a.json", "a.png", "a.png"),
            ("set/a.json", "a.png", "set/a.png"),
            ("images/a.json", "a.png", "images/a.png"),
            ("labels/a.json", "..\\images\\b.png", "images/b.png"),
            ("a.json", "C:\\photos\\old.png", "a.png"),
            ("a.json", "", "a.png"),
            ("a.b.json", "gone.jpg", "a.b.png"),
        ],
    )
    def test_where_the_file_says_or_beside_it(self, set_of, file, named, image):
        path = set_of({file: record(CAT, image=named)}, image)
        assert load_splits(path, val_fraction=0).train.names == (image,)

    def test_parts(self, set_of):
        files = {f"{part}/a.json": record(CAT, DOG) for part in ("train", "valid", "test")}
        path = set_of(files, *(name.replace("json", "png") for name in files))
        splits = load_splits(path)
        assert (splits.train.names, splits.val.names) == (("train/a.png",), ("valid/a.png",))
        assert has_test(path)

    def test_classes_for_a_kit_of_images_may_lie_beside_them(self, set_of):
        files = {"cats/a.json": record(CAT), "dogs/b.json": record(DOG, image="b.png")}
        path = set_of(files, "cats/a.png", "dogs/b.png")
        splits = load_splits(path, val_fraction=0, task="classification")
        assert splits.classes == ("cats", "dogs")
        assert load_splits(path, val_fraction=0).classes == ("background", "cat", "dog")

    def test_other_files_beside_photos_are_left_alone(self, photos, tree):
        photos(cats=2, dogs=2)
        path = tree({"cats/00.png.json": '{"title": "00.png"}', "dogs/x.json": "{"})
        assert load_splits(path, val_fraction=0).classes == ("cats", "dogs")

    def test_a_missing_photo_is_skipped(self, set_of):
        path = set_of({"a.json": record(CAT), "b.json": record(image="b.png")}, "a.png")
        assert load_splits(path, val_fraction=0).skipped == (("b.png", "no such file"),)


class TestRefused:
    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            (record(), "a.json and the other files like it have no objects"),
            (record(CAT, imageHeight=None), "a.json has no imageHeight or no imageWidth"),
            (record(CAT, imagePath=None), "a.json has no imagePath, as files of labelme have"),
            (record(3), "has a shape without a label"),
            (record(shape(" ", [])), "has a shape without a label"),
            (record(shape("x", [[0, 0], [1, 1]])), "of 'x' that covers no pixels: it is a polygon"),
            (record(shape("x", [[0, 0]], "point")), "it is a point, but masks are drawn of"),
            (record(shape("x", [[0, 0], [1]])), "a polygon is not a list of x and y"),
            (record(shape("x", [3])), "a.json has a shape of 'x' that covers no pixels"),
            (record(CAT, imageWidth=WIDTH + 1), f"has {WIDTH + 1} x {HEIGHT} pixels and its image"),
            (
                record(*(shape(f"{i}", CAT["points"]) for i in range(300))),
                "objects of 300 categories",
            ),
        ],
    )
    def test_records(self, set_of, changed, reason):
        assert reason in refusal(set_of({"a.json": changed}, "a.png"))

    def test_a_damaged_file(self, set_of):
        path = set_of({"a.json": record(CAT)}, "a.png", "b.png")
        text = json.dumps(record(CAT))
        for cut in (5, text.index("aGk") + 1, len(text) - 1):
            (path / "b.json").write_text(text[:cut])
            assert refusal(path).startswith("b.json is damaged: ")

    def test_two_files_of_one_photo(self, set_of):
        path = set_of({"a.json": record(CAT), "b.json": record(CAT)}, "a.png")
        assert "a.json and b.json are both of a.png; keep one of them" in refusal(path)

    def test_a_kit_for_images(self, set_of):
        path = set_of({"a.json": record(CAT)}, "a.png")
        assert "has masks" in refusal(path, task="classification")

    def test_copies(self, set_of, tmp_path):
        from pocketune.data.prepare import prepare

        path = set_of({"a.json": record(CAT)}, "a.png")
        with pytest.raises(PocketuneError, match="has outlines in pixels of the photos"):
            prepare(path, tmp_path / "small")
