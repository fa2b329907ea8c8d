"""Photos and masks in folders of other names."""

from pathlib import Path

import pytest
from PIL import Image

from pocketune.data import load_splits
from pocketune.data.finding import task_of
from pocketune.errors import PocketuneError


def write(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 40 * number).save(folder / name)
    return folder


@pytest.mark.parametrize(
    "names",
    [
        "img/a.jpg img/b.jpg mask/a.png mask/b.png",
        "images/a.jpg images/b.jpg labels/a.png labels/b.png",
        "left/a.jpg left/b.jpg right/a_x.png right/b_x.png",
        "train/a.png train/b.png trainannot/a.png trainannot/b.png",
        "images/training/a.jpg annotations/training/a.png",
        "images/a.jpg images/b.jpg annotations/trimaps/a.png annotations/trimaps/b.png",
    ],
)
def test_photos_and_masks_under_other_names_are_no_classes(names: str, tmp_path: Path) -> None:
    folder = write(tmp_path, *names.split())
    with pytest.raises(PocketuneError, match="call them images and masks to train on masks"):
        task_of(folder)
    splits = load_splits(folder, task="classification", val_fraction=0)
    assert len(splits.train.task.classes) == 2  # if that is what is asked for


def test_a_folder_of_texts_has_no_masks(tmp_path: Path) -> None:
    folder = write(tmp_path, "photos/a.jpg", "photos/b.jpg")
    (folder / "labels").mkdir()
    (folder / "labels" / "a.txt").write_text("0 0.5 0.5 0.1 0.1")
    assert task_of(folder).name == "classification"


@pytest.mark.parametrize(
    "names",
    [
        "cats/1.jpg cats/2.jpg dogs/1.jpg dogs/2.jpg",
        "cats/1.png cats/2.png dogs/1.png dogs/2.png",
        "cats/1.jpg cats/2.jpg dogs/1.png dogs/3.png",
        "cats/1.jpg dogs/1.png birds/1.png",
        "mask/1.jpg mask/2.jpg no_mask/1.jpg no_mask/2.jpg",
        "mask/1.png mask/2.png without_mask/1.png without_mask/2.png",
        "labelled/1.jpg plain/1.jpg",
    ],
)
def test_classes_of_equal_names_stay_classes(names: str, tmp_path: Path) -> None:
    assert task_of(write(tmp_path, *names.split())).name == "classification"
