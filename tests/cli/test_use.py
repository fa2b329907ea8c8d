"""`predict`, `evaluate`, `export` and `kit show` in this process."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from pocketune.cli import app
from pocketune.device import Model
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.record import RunRecord
from pocketune.device.use.unknown import known_of
from pocketune.kit.manifest import SCHEMA

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit


@pytest.fixture(scope="module")
def whole(photos, kit, tmp_path_factory) -> Path:
    """A finished run, which `trained` copies."""
    folder = tmp_path_factory.mktemp("whole") / "trained"
    options = ["--epochs", "8", "--lr", "0.05", "--out", str(folder)]
    result = CliRunner().invoke(app, ["train", str(photos), "--kit", str(kit), *options])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def trained(run, whole) -> str:
    """A run in the folder of the test."""
    return shutil.copytree(whole, "trained")


def test_predict(run, photos, trained):
    result = run("predict", trained, photos / "red", photos / "blue" / "0.png", "--top", 2)
    assert result.exit_code == 0
    told = result.stdout.splitlines()
    assert len(told) == 11
    name, guesses = told[-1].split(": ")
    assert name == str(photos / "blue" / "0.png")
    first, second = guesses.split(", ")
    assert first.split()[0] in CLASSES
    assert float(first.split()[1][:-1]) >= float(second.split()[1][:-1])


def test_a_file_that_is_named_twice_has_two_lines(run, photos, trained):
    Path("empty").mkdir()
    file = photos / "red" / "0.png"
    told = run("predict", trained, file, "empty", photos / "red", file).stdout.splitlines()
    assert len(told) == 12
    assert told.count(told[0]) == 3


def test_predict_json_is_an_object_a_line(run, photos, trained):
    Path("notes.txt").write_text("hello")
    result = run("predict", trained, photos / "red", "notes.txt", "--json")
    assert result.exit_code == 0
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(told) == 11
    good = [line for line in told if "error" not in line]
    for line in good:
        assert set(line) == {"image", "classes"}
        assert [set(c) for c in line["classes"]] == [{"class", "probability"}] * 3
        assert sum(c["probability"] for c in line["classes"]) == pytest.approx(1)
    bad = [line for line in told if "error" in line]
    assert bad == [{"image": "notes.txt", "error": "not an image in a known format"}]


def test_predict_says_what_it_does_not_know(run, photos, trained):
    model = Model.open(trained)
    known = known_of(model)
    strict = replace(known, threshold=known.threshold / 4)  # so that some photos are unknown
    strict.save(Path(trained), model.kit.identity, model.step)
    plain = run("predict", trained, photos).stdout.splitlines()
    told = run("predict", trained, photos, "--unknown").stdout.splitlines()
    result = run("predict", trained, photos, "--unknown", "--json")
    judged = [json.loads(line) for line in result.stdout.splitlines()]
    assert {each["unknown"] for each in judged} == {False, True}
    for line, before, each in zip(told, plain, judged, strict=True):
        assert set(each) == {"image", "classes", "unknown", "distance"}
        assert each["unknown"] == (each["distance"] > 1)
        name, guesses = before.split(": ")
        assert line == (f"{name}: none of these ({guesses})" if each["unknown"] else before)


def test_photos_above_a_limit_of_pixels_are_left_out_and_named(run, tmp_path, kit):
    photos = write_photos(tmp_path / "photos")
    for name in ("a", "b"):
        Image.new("RGB", (100, 80), "red").save(photos / "red" / f"{name}.webp")
    limit = ("--max-pixels", "0.0079MP")
    reason = "its 100 x 80 pixels would be decoded in full, and max_pixels is 7,900"
    result = run("train", photos, "--kit", kit, "--epochs", 1, "--out", "limited", *limit)
    assert result.exit_code == 0, result.output
    assert f"2 files skipped:\n  red/a.webp: {reason}" in result.stdout
    assert Checkpoint.load(Path("limited/last.safetensors")).settings.max_pixels == 7900
    own = run("evaluate", "limited")  # its photos are divided as in training
    assert (own.exit_code, own.stdout.count(reason)) == (0, 2)
    assert "leave --max-pixels out" in run("evaluate", "limited", *limit).stderr
    assert run("evaluate", "limited", photos, *limit).stdout.count(reason) == 2
    assert reason not in run("evaluate", "limited", photos).stdout
    large = photos / "red" / "a.webp"
    result = run("predict", "limited", large, photos / "red" / "0.png", *limit)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"skipped {large}: {reason}; allow more, or make it smaller")
    result = run("predict", "limited", large, *limit)
    assert result.exit_code == 1
    assert "error: none of the files is an image that can be read\n" in result.stderr


def test_predict_names_what_it_skips_and_fails_where_nothing_is_left(run, photos, trained):
    Path("notes.txt").write_text("hello")
    result = run("predict", trained, "notes.txt", photos / "red" / "0.png")
    assert result.exit_code == 0
    assert result.stderr == "skipped notes.txt: not an image in a known format\n"
    result = run("predict", trained, "notes.txt")
    assert result.exit_code == 1
    assert "error: none of the files is an image that can be read\n" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trained", "nowhere.jpg"], "nowhere.jpg does not exist"),
        (["nowhere", "photo.jpg"], "there is no kit or run at nowhere"),
        (["trained", ".", "--top", "0"], "--top 0 must be a whole number"),
        (
            ["last", ".", "--unknown"],
            "cannot tell photos of none of its classes: a finished run can",
        ),
    ],
)
def test_predict_refuses(run, trained, arguments, said):
    result = run("predict", *arguments)
    assert result.exit_code == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [([], "RUN"), (["run"], "FILES..."), (["--kit", "blocks"], "FILES...")],
)
def test_predict_names_the_argument_that_is_missing(run, arguments, missing):
    result = run("predict", *arguments)
    assert result.exit_code == 2
    assert f"Missing argument '{missing}'" in result.stderr


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


def test_export(run, trained):
    result = run("export", trained, "--out", "deep/flowers.onnx")
    assert result.exit_code == 0, result.output
    assert "images uint8 (N, 16, 16, 3) -> logits float32 (N, 3)" in result.stdout
    assert Path("deep/flowers.onnx").stat().st_size > 1000


def test_photos_to_export_without_calibration(run, trained, photos):
    result = run("export", trained, "--photos", photos)
    assert result.exit_code == 1
    assert "error: --photos is for --int8, --fp16 and --tflite: leave it out" in result.stderr


def test_what_was_there_is_said_to_be_replaced(run, kit):
    assert run("export", kit).stdout.startswith("wrote model.onnx (")
    assert run("export", kit).stdout.startswith("replaced model.onnx (")


def test_export_to_model_onnx_by_default(run, kit):
    assert run("export", kit).stdout.startswith("wrote model.onnx (")
    assert Path("model.onnx").exists()


def test_export_in_fewer_bits(run, kit, photos):
    result = run("export", kit, "--int8", "--photos", photos)
    assert result.exit_code == 0, result.output
    assert "of its answers are those of the model; the logits are off by " in result.stdout
    assert "wrote model.onnx (" in result.stdout
    assert "fp16: there are no photos to compare it on" in run("export", kit, "--fp16").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--int8", "--fp16"], "exclude each other: choose one"),
        (["--float32", "--int8"], "exclude each other: choose one"),
        (["--tflite", "--fp16"], "--tflite is not possible with --fp16"),
        (["--tflite", "--output", "classes"], "--tflite: leave out --tflite"),
        (["--int8", "--output", "classes"], "--int8: leave out --int8"),
        (["--int8"], "is not a run; give PHOTOS to evaluate, or --photos to export"),
        (["--tflite", "--out", "model.onnx"], "is that of an ONNX file: leave out --tflite"),
        (["--fp16", "--out", "model.tflite"], "--tflite is not possible with --fp16"),
    ],
)
def test_export_in_fewer_bits_refuses(run, kit, options, said):
    result = run("export", kit, *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert not Path("model.onnx").exists()


def test_export_for_tensorflow_lite(run, kit, photos):
    pytest.importorskip("ai_edge_litert", reason="needs the extra tflite")
    result = run("export", kit, "--tflite", "--photos", photos)
    assert result.exit_code == 0, result.output
    assert "int8: on 6 photos, " in result.stdout
    assert "wrote model.tflite (" in result.stdout
    assert "images uint8 (1, 16, 16, 3) -> logits float32 (1, 3), whose softmax" in result.stdout
    result = run("export", kit, "--tflite", "--float32", "--out", "whole.tflite")
    assert "float32: there are no photos to compare it on" in result.stdout
    assert Path("whole.tflite").stat().st_size > 1000
    run("export", kit, "--float32", "--out", "named.tflite")
    assert Path("named.tflite").read_bytes() == Path("whole.tflite").read_bytes()
    refused = run("export", kit, "--tflite")
    assert (
        refused.exit_code == 1
        and "is not a run; give PHOTOS to evaluate, or --photos to export" in refused.stderr
    )


def test_kit_show(run, kit):
    result = run("kit", "show", kit)
    assert result.exit_code == 0
    told = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert told["kit"] == str(kit)
    assert told["trains"] == "22 parameters"
    assert told["images"] == "16 x 16 pixels, batch 4"
    assert told["classes"] == "3: blue, green, red"
    assert " MB with adam, " in told["memory"]


def test_kit_show_tells_the_parts_of_a_step(run, tmp_path):
    TinyKit(statistic=False, micro_batch=2).write(tmp_path / "kit")
    assert "batch 4 in 2 parts" in run("kit", "show", tmp_path / "kit").stdout


def test_kit_show_says_that_the_classes_of_a_bundled_kit_are_placeholders(run, kit):
    assert "8, 9 (placeholders: it is not trained)" in run("kit", "show", "blocks").stdout
    assert "placeholders" not in run("kit", "show", kit).stdout


def test_kit_show_json_is_the_manifest_and_more(run, kit):
    told = json.loads(run("kit", "show", kit, "--json").stdout)
    assert told["task"]["classes"] == list(CLASSES)
    assert told["trained_parameters"] == 22
    assert told["training_memory"]["adam"] >= told["training_memory"]["sgd"] > 10_000_000
    assert told["schema"] == SCHEMA


def test_kit_show_of_a_run_lists_its_own_classes(run, kit, tmp_path):
    photos = write_photos(tmp_path / "two", classes=("cyan", "pink"))
    assert run("train", photos, "--kit", kit, "--epochs", 1, "--out", "run").exit_code == 0
    told = json.loads(run("kit", "show", "run", "--json").stdout)
    assert told["task"]["classes"] == ["cyan", "pink"]
    assert told["network"]["classes"] == 2
    assert told["trained_parameters"] == 15


def test_kit_show_refuses(run, tmp_path):
    result = run("kit", "show", tmp_path)
    assert result.exit_code == 1
    assert "is neither a kit nor a run: it holds no manifest.json" in result.stderr


def test_a_file_in_halves_that_is_larger_says_so(run):
    told = run("export", "blocks", "--fp16").stdout
    assert "the file is larger than the ONNX file without these options (1.7 MB)" in told


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
