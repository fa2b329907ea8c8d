"""Which layout the labels of a folder have, where it could be several."""

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


LABELS = "file,label\nimages/0.png,a\nimages/1.png,b\nimages/2.png,a\n"
DETECTION = "0 0.5 0.5 0.2 0.2\n"


@pytest.mark.parametrize(
    "beside",
    [
        {"images/0.jpg": 9},
        {"annotations.json": "[1, 2]"},
        {"annotations.json": '{"images": [], "annotations": [], "categories": []}'},
        {"labels/0.txt": DETECTION},
        {"masks/0.png": 9},
    ],
    ids=["one name twice", "other annotations", "no outlines", "boxes", "a mask"],
)
@pytest.mark.parametrize("task", [None, "classification"])
def test_a_table_beside_what_looks_like_masks(tree, beside, task):
    folder = tree({f"images/{i}.png": i for i in range(3)} | beside | {"labels.csv": LABELS})
    splits = load_splits(folder, val_fraction=0, task=task)
    assert splits.classes == ("a", "b")
    assert len(splits.train) == 3


@pytest.mark.parametrize("task", [None, "classification"])
def test_class_folders_among_images_with_a_film_of_the_same_name(tree, task):
    folder = tree({"images/x/0.png": 0, "images/x/0.mov": "film", "images/y/1.png": 1})
    assert load_splits(folder, val_fraction=0, task=task).classes == ("x", "y")


def test_images_and_masks_are_no_classes_where_a_mask_is_missing(tree):
    folder = tree({"images/0.png": 0, "images/1.png": 1, "masks/0.png": 0})
    for task in (None, "classification"):
        with pytest.raises(PocketuneError, match=r"1\.png in .* has no mask of the same name"):
            load_splits(folder, task=task)
