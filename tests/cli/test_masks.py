"""Commands on masks: predict into a folder, evaluate, and errors in words of the command line."""

import csv
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pocketune.kit import Kit

from ..device.pixel_kit import CLASSES, write_exact_model, write_pixel_kit, write_scenes


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Scenes, and a model that knows their colors."""
    folder = tmp_path_factory.mktemp("masks")
    write_scenes(folder / "photos", 4, size=(45, 30))
    write_exact_model(folder / "kit")
    return folder


def test_evaluate(run, place):
    result = run(
        *("evaluate", place / "kit", place / "photos", "--window", "slide", "--overlap", 0.5),
        *("--per-class", "classes.csv", "--confusion", "confusion.csv"),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mIoU ")
    assert "of 4 photos" in result.stdout
    with Path("classes.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["class", "pixels", "IoU", "accuracy", "precision"]
    assert [row[0] for row in rows[1:]] == list(CLASSES)
    with Path("confusion.csv").open(newline="") as file:
        assert sum(int(n) for row in list(csv.reader(file))[1:] for n in row[1:]) == 4 * 45 * 29


def test_evaluate_reads_masks_as_it_is_told(run, place):
    result = run("evaluate", place / "kit", place / "photos", "--ignore", "sky", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["absent"] == ["sky"]
    result = run("evaluate", place / "kit", place / "photos", "--ignore", "grass")
    assert result.exit_code == 1
    assert "--ignore grass is neither a value" in result.stderr


def test_predict_writes_masks(run, place):
    result = run("predict", place / "kit", place / "photos" / "images", "--out", "seen")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4
    with Image.open("seen/masks/2.png") as mask:
        assert (mask.mode, mask.size) == ("P", (45, 30))
    assert Path("seen/overlays/2.jpg").is_file()
    assert Path("seen/classes.txt").read_text().split() == list(CLASSES)
    again = run("predict", place / "kit", place / "photos" / "images", "--out", "seen")
    assert again.exit_code == 1
    assert "seen is not empty" in again.stderr


def test_predict_json(run, place):
    photo = place / "photos" / "images" / "0.png"
    result = run("predict", place / "kit", photo, "--json", "--window", "slide", "--top", 1)
    (line,) = map(json.loads, result.stdout.splitlines())
    assert list(line) == ["image", "classes"]
    assert set(line["classes"][0]) == {"class", "share"}


def test_masks_train_with_nothing_set(run, place, monkeypatch):
    result = run("train", place / "photos", "--steps", 2, "--out", "run")
    assert result.exit_code == 0, result.output
    assert "this was the bundled kit 'masks'; choose another with --kit" in result.stderr
    assert "3 classes (sky, road, car)" in result.stdout
    assert Kit.open("run").manifest.network["backbone"] == "efficientnet_lite0"
    told = []
    log = logging.getLogger("pocketune.device.use.held_back")
    monkeypatch.setattr(log, "info", lambda text, *values: told.append(text % values))
    run("evaluate", "run", place / "photos", "--ignore", "sky")
    assert "has changed, or its masks are read otherwise, since the run" in told[0]


def test_masks_for_a_kit_of_classes(run, place, monkeypatch):
    """The path is shown as it was typed."""
    monkeypatch.chdir(place / "kit")
    result = run("train", "../photos", "--kit", "last", "--out", "run")
    assert result.exit_code == 1
    assert "error: ../photos has masks, which give each pixel a class" in result.stderr
    assert "train with --kit masks, or with a network that classifies pixels" in result.stderr


def test_a_plan_for_masks(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", "none")
    write_scenes(tmp_path / "photos", 12)
    write_pixel_kit(Path("kits", "mine"))
    options = ("--ignore", "sky", "--steps", 2, "--out", "p")
    result = run("plan", "photos", "--kits", "kits", *options)
    assert result.exit_code == 0, result.output
    plan = json.loads(Path("p", "plan.json").read_text())
    assert {trial["candidate"]["name"] for trial in plan["trials"]} == {"masks", "mine"}
    assert plan["asked"]["task"] == "segmentation"
    assert plan["asked"]["classes"] == 2


def test_unknown_weights(run, place):
    result = run("train", place / "photos", "--kit", place / "kit", "--class-weights", "heavy")
    assert result.exit_code == 2
    assert "'heavy'" in result.stderr


def test_objects_of_255(run, place):
    write_scenes(Path("photos"), 3)
    for file in Path("photos", "masks").iterdir():
        mask = np.zeros((24, 32), np.uint8)
        mask[:, 16:] = 255
        Image.fromarray(mask).save(file)
    result = run("train", "photos", "--kit", place / "kit", "--out", "run")
    assert result.exit_code == 1
    assert "0 (50.0%), 255 (50.0%)" in result.stderr
    assert "give --ignore none if it is a class, or --ignore 255 to ignore it" in result.stderr
    assert not Path("run").exists()


def test_classes_for_a_kit_of_masks(run, photos, place):
    result = run("train", photos, "--kit", place / "kit", "--out", "run")
    assert result.exit_code == 1
    assert "gives each image a class by its folder, but masks are needed" in result.stderr
    assert "; to learn classes, train a kit for them, such as the bundled blocks" in result.stderr


def test_a_kit_of_masks_is_shown(run, place):
    result = run("kit", "show", place / "kit")
    assert "sky, road, car" in result.stdout
    assert Kit.open(place / "kit").manifest.task.name == "segmentation"
