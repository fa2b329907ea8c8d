"""`pocketune evaluate`."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pocketune.device.train.record import RunRecord

from ..device.softmax_engine import CLASSES


def test_evaluate(run, photos, trained):
    result = run("evaluate", trained)
    assert result.exit_code == 0
    figures, *classes = result.stdout.splitlines()
    assert figures.startswith("top-1 ") and figures.endswith(" of 6 photos")
    assert {line.split()[0] for line in classes} == set(CLASSES)


def test_the_photos_of_a_run_are_known_wherever_they_are(process, photos, trained, tmp_path):
    shutil.copytree(photos, tmp_path / "moved")
    own, moved = process("evaluate", trained), process("evaluate", trained, tmp_path / "moved")
    assert own.stderr.startswith("note: these validation photos also chose between the start and ")
    assert "of 6 photos" in own.stdout == moved.stdout
    assert moved.stderr == (
        "note: the run was trained on 24 of these 30 photos; the 6 that it held back are evaluated"
        f"\n{own.stderr}"
    )


def test_photos_of_a_run_that_have_changed_are_told(process, photos, kit, tmp_path):
    own = shutil.copytree(photos, tmp_path / "own")
    options = ("--kit", kit, "--out", tmp_path / "run", "--epochs", 1)
    assert process("train", own, *options).returncode == 0
    shutil.copy(own / "red" / "0.png", own / "red" / "more.png")
    done = process("evaluate", tmp_path / "run", own)
    assert done.stderr == (
        f"note: {own} has changed since the run was trained on 24 photos in it; the other 7 are "
        "evaluated\n"
    )
    assert "of 7 photos" in done.stdout
    kept = shutil.copytree(own, tmp_path / "kept")
    shutil.rmtree(own)
    shutil.copytree(photos, own)  # as they were
    assert "of 6 photos" in process("evaluate", tmp_path / "run").stdout
    elsewhere = process("evaluate", tmp_path / "run", kept)
    assert "of 31 photos" in elsewhere.stdout  # they may be anybody's
    assert elsewhere.stderr == (
        "note: 24 of these 31 photos have the names of photos that the run was trained on; if they "
        "are the same, the figures are too good\n"
    )


def test_a_kit_that_is_not_trained_is_not_evaluated(run, photos):
    result = run("evaluate", "last", photos)
    assert result.exit_code == 1
    assert "error: last knows no classes before it is trained: evaluate a run" in result.stderr


def test_tables_that_would_replace_something(run, photos, kit):
    run("train", photos, "--kit", kit, "--out", "run", "--epochs", 1)
    before = Path("run/manifest.json").read_bytes()
    result = run("evaluate", "run", "--per-class", "run/manifest.json")
    assert "is the run or kit itself, or a file in it" in result.stderr
    assert Path("run/manifest.json").read_bytes() == before
    result = run("evaluate", "run", "--per-class", "a.csv", "--confusion", "./a.csv")
    assert "name the same file" in result.stderr
    assert not Path("a.csv").exists()
    shutil.copy(photos / "red" / "0.png", "photo.png")
    result = run("evaluate", "run", "--confusion", "photo.png")
    assert "photo.png exists and is not a .csv file: choose another name" in result.stderr
    Path("labels.csv").write_text(f"file,label\n{photos}/red/0.png,red\n{photos}/blue/0.png,blue\n")
    result = run("evaluate", "run", "labels.csv", "--confusion", "labels.csv")
    assert "labels.csv is the table of the photos: choose another file" in result.stderr


def test_figures_are_shown_where_a_table_cannot_be_written(run, photos, kit):
    run("train", photos, "--kit", kit, "--out", "run", "--epochs", 1)
    result = run("evaluate", "run", "--confusion", "/proc/none/confusion.csv")
    assert result.exit_code == 1 and "/proc/none" in result.stderr
    assert result.stdout.startswith("top-1 ")


def test_photos_of_a_run_that_have_moved(run, photos, kit, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(photos, moved / "train")
    shutil.copytree(photos, moved / "test")
    options = ("--kit", kit, "--out", "run", "--epochs", 1)
    assert run("train", moved, *options).exit_code == 0
    shutil.rmtree(moved)
    gone = f"the photos of the run are no longer at {moved}; give their new location as PHOTOS, or"
    for arguments in (["evaluate"], ["evaluate", "--test"], ["export", "--int8"]):
        assert gone in run(*arguments, "run").stderr


def test_evaluate_writes_tables(run, photos, trained):
    result = run("evaluate", trained, photos, "--confusion", "c.csv", "--per-class", "p.csv")
    assert result.exit_code == 0
    confusion = list(csv.reader(Path("c.csv").read_text().splitlines()))
    assert confusion[0] == ["class", *CLASSES]
    assert sum(int(cell) for row in confusion[1:] for cell in row[1:]) == 6
    assert [row["class"] for row in csv.DictReader(Path("p.csv").read_text().splitlines())] == list(
        CLASSES
    )


def test_evaluate_json(run, photos, trained):
    told = json.loads(run("evaluate", trained, photos, "--json").stdout)
    assert set(told) == {*("images", "top1", "top5", "balanced", "classes", "confusion", "skipped")}
    assert told["images"] == np.sum(told["confusion"]) == 6
    assert told["top1"] > 0.6  # it has learned
    assert told["top1"] == np.trace(told["confusion"]) / 6
    assert [c["class"] for c in told["classes"]] == list(CLASSES)
    described = " ".join(run("evaluate", "--help").output.replace("│", " ").split())
    assert f'"classes" ({", ".join(told["classes"][0])})' in described


def test_evaluate_json_has_no_nan(run, kit, tmp_path, photos):
    for name in ("red", "blue"):
        shutil.copytree(photos / name, tmp_path / "two" / name)
    text = run("evaluate", kit, "two", "--json").stdout
    assert "NaN" not in text
    assert [c["recall"] is None for c in json.loads(text)["classes"]] == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no kit or run at nowhere"),
        (["trained", "nowhere"], "nowhere does not exist"),
        (["trained", "--confusion", "/dev/null/folder.csv"], "cannot be written"),
    ],
)
def test_evaluate_refuses(run, trained, arguments, said):
    result = run("evaluate", *arguments)
    assert result.exit_code == 1
    assert said in result.stderr


def test_a_kit_has_no_photos_of_its_own(run, kit):
    result = run("evaluate", kit)
    assert result.exit_code == 1
    assert "give PHOTOS to evaluate, or --photos to export" in result.stderr


def test_photos_of_a_computed_classifier_are_predicted_by_that_of_all_others(
    process, photos, kit, tmp_path
):
    assert process("train", photos, "--kit", kit, "--out", tmp_path / "few").returncode == 0
    done = process("evaluate", tmp_path / "few", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "note: the run held no photos back: each of its photos is predicted by the classifier "
        "that is computed from all others\n"
    )
    result = json.loads(done.stdout)
    estimate = RunRecord.read(tmp_path / "few").estimate
    assert (result["images"], result["top1"]) == (30, pytest.approx(estimate.value))
    lone = shutil.copytree(photos, tmp_path / "photos")
    (lone / "lone").mkdir()
    next((lone / CLASSES[0]).iterdir()).rename(lone / "lone" / "one.png")
    assert process("train", lone, "--kit", kit, "--out", tmp_path / "lone").returncode == 0
    done = process("evaluate", tmp_path / "lone", "--json")
    assert "1 photo could not be tested this way: no other shows the same class" in done.stderr
    assert json.loads(done.stdout)["images"] == 29
    options = ("--epochs", 1, "--val-fraction", 0, "--out", tmp_path / "steps")
    assert process("train", photos, "--kit", kit, *options).returncode == 0
    done = process("evaluate", tmp_path / "steps")
    assert done.returncode == 1
    assert "steps held no photos back; give PHOTOS to evaluate" in done.stderr


def test_photos_without_labels_are_to_be_predicted(run, photos, kit, tmp_path):
    run("train", photos, "--kit", kit, "--out", tmp_path / "run")
    new = tmp_path / "new photos"
    new.mkdir()
    shutil.copy(next(photos.rglob("*.png")), new)
    done = run("evaluate", tmp_path / "run", new)
    assert done.exit_code == 1
    assert done.stderr.endswith(
        "put each class's images into a folder of its name; photos without labels can be "
        f"predicted: pocketune predict {tmp_path / 'run'} '{new}'\n"
    )
