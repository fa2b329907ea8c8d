"""`pocketune predict` in this process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from pocketune.device import Model
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.use.unknown import known_of

from ..device.softmax_engine import CLASSES, write_photos


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
