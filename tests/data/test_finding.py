"""Which layout the labels of a folder have, where it could be several."""

import json

import pytest

from pocketune.data import load_splits, task_of
from pocketune.errors import PocketuneError


@pytest.mark.parametrize("text", ['{"author": "me", "photos": 24}', "[1, 2]", "no JSON"])
def test_class_folders_beside_a_file_that_is_called_annotations(photos, text):
    folder = photos(cats=2, dogs=2)
    (folder / "annotations.json").write_text(text)
    assert task_of(folder).name == "classification"
    assert load_splits(folder, val_fraction=0).classes == ("cats", "dogs")
    with pytest.raises(PocketuneError, match=r"annotations\.json"):
        load_splits(folder, task="segmentation")


def test_class_folders_beside_annotations_of_another_name(photos):
    folder = photos(cats=2, dogs=2)
    image = COCO["images"][0] | {"file_name": "cats/00.png"}
    objects = {"images": [image], "annotations": [OUTLINED]}
    (folder / "train.json").write_text(json.dumps(COCO | objects))
    assert load_splits(folder, val_fraction=0).classes == ("cats", "dogs")


LABELS = "file,label\nimages/0.png,a\nimages/1.png,b\nimages/2.png,a\n"
DETECTION = "0 0.5 0.5 0.2 0.2\n"
BOX = {"id": 1, "image_id": 0, "category_id": 0, "segmentation": []}
OUTLINED = BOX | {"segmentation": [[0, 0, 4, 0, 4, 4]]}
COCO = {
    "images": [{"id": 0, "file_name": "images/0.png", "height": 48, "width": 48}],
    "categories": [{"id": 0, "name": "cat"}],
}


@pytest.mark.parametrize(
    "beside",
    [
        {"images/0.jpg": 9},
        {"annotations.json": "[1, 2]"},
        {"annotations.json": '{"images": [], "annotations": [], "categories": []}'},
        {"labels/0.txt": DETECTION},
        {"labels/0.txt": "", "labels/1.txt": DETECTION, "data.yaml": "names: [cat]"},
        {"masks/0.png": 9},
        {"masks/README": "Drawn by hand"},
        {"annotations.json": json.dumps(COCO | {"annotations": [BOX, BOX]})},
        {"annotations.json": '{"images": ["0.png"]}'},
        {"labels/0.txt": "a cat that looks out of the window"},
    ],
    ids=[
        "one name twice",
        "other annotations",
        "no outlines",
        "boxes",
        "boxes of named classes",
        "a mask",
        "notes",
        "boxes of COCO",
        "no records",
        "words",
    ],
)
@pytest.mark.parametrize("task", [None, "classification"])
def test_a_table_beside_what_looks_like_masks(tree, beside, task):
    folder = tree({f"images/{i}.png": i for i in range(3)} | beside | {"labels.csv": LABELS})
    splits = load_splits(folder, val_fraction=0, task=task)
    assert splits.classes == ("a", "b")
    assert len(splits.train) == 3


BROKEN = {
    "has no mask": {"masks/0.png": 0, "masks/1.png": 1},
    "is damaged": {"annotations.json": json.dumps(COCO)[:-9]},
    "without an outline": {"annotations.json": json.dumps(COCO | {"annotations": [BOX, OUTLINED]})},
    "without the names of their classes": {"labels/0.txt": "0 0.1 0.1 0.1 0.9 0.9 0.9\n"},
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_masks_beside_a_table_are_refused_unless_classes_are_wanted(tree, message):
    files = {f"images/{i}.png": i for i in range(3)} | BROKEN[message] | {"meta.csv": LABELS}
    folder = tree(files)
    with pytest.raises(PocketuneError, match=message):
        load_splits(folder)
    assert load_splits(folder, val_fraction=0, task="classification").classes == ("a", "b")


@pytest.mark.parametrize("task", [None, "classification"])
def test_class_folders_among_images_with_a_film_of_the_same_name(tree, task):
    folder = tree({"images/x/0.png": 0, "images/x/0.mov": "film", "images/y/1.png": 1})
    assert load_splits(folder, val_fraction=0, task=task).classes == ("x", "y")


def test_images_and_masks_are_no_classes_where_a_mask_is_missing(tree):
    folder = tree({"images/0.png": 0, "images/1.png": 1, "masks/0.png": 0})
    for task in (None, "classification"):
        with pytest.raises(PocketuneError, match=r"1\.png in .* has no mask of the same name"):
            load_splits(folder, task=task)
