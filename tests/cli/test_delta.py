"""`pocketune delta` and `predict --delta`."""

import json
from pathlib import Path

import pytest

from pocketune.kit.kit import Kit

from ..device.runs import trained_state, write_best
from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit


@pytest.fixture
def trained(tmp_path: Path, kit: Path) -> str:
    folder = Kit.open(kit).copy_to(tmp_path / "trained")
    write_best(folder.path, folder, trained_state(TinyKit(classes=CLASSES)), CLASSES)
    return "trained"


@pytest.fixture
def saved(run, trained) -> str:
    result = run("delta", "save", trained, "--out", "d.safetensors")
    assert result.exit_code == 0, result.output
    assert "4 tensors; 3 classes: blue, green, red" in result.stdout
    return "d.safetensors"


def test_train_save_apply_and_predict_as_a_user_does(run, process, photos, kit, tmp_path):
    more = write_photos(tmp_path / "two", classes=("cyan", "pink"))
    for name, folder in (("first", photos), ("second", more)):
        options = ("--kit", kit, "--epochs", 1, "--out", name)
        assert run("train", folder, *options).exit_code == 0
        told = run("delta", "save", name, "--out", f"{name}.safetensors")
        assert told.exit_code == 0, told.output
        assert told.stdout.startswith(f"wrote {name}.safetensors (")
    image = photos / "red" / "0.png"
    told = process(
        "predict", "--kit", kit, "--delta", "first.safetensors", "--delta", "second.safetensors",
        image, "--json",
    )  # fmt: skip
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line.pop("delta") for line in lines] == ["first.safetensors", "second.safetensors"]
    for line, name in zip(lines, ("first", "second"), strict=True):
        assert line == json.loads(run("predict", name, image, "--json").stdout)
    told = run("delta", "apply", kit, "second.safetensors", "--out", "second.zip")
    assert told.stdout == "wrote second.zip: a kit of 2 classes: cyan, pink\n"
    told = run("predict", "second.zip", image, "--json")
    assert json.loads(told.stdout) == lines[1]
    assert run("train", more, "--kit", "second.zip", "--epochs", 1).exit_code == 0


def test_what_was_there_is_said_to_be_replaced(run, trained, saved, kit):
    done = run("delta", "save", trained, "--out", saved)
    assert done.stdout.startswith("replaced d.safetensors (")
    for verb in ("wrote", "replaced"):
        done = run("delta", "apply", kit, saved, "--out", "made.zip")
        assert done.stdout.startswith(f"{verb} made.zip: ")


def test_the_format_follows_the_name(run, trained):
    assert run("delta", "save", "last", "--out", "d.onnx_adapter").exit_code == 0
    assert Path("d.onnx_adapter").read_bytes()[4:8] == b"TORT"
    shown = run("delta", "show", "d.onnx_adapter")
    assert "d.onnx_adapter is an adapter of ONNX Runtime" in shown.stderr
    result = run("delta", "save", trained, "--out", "e.onnx_adapter", "--format", "safetensors")
    assert result.exit_code == 1
    assert "that of the format onnx-adapter, not safetensors: choose another" in result.stderr
    assert not Path("e.onnx_adapter").exists()


def test_what_is_no_delta(run, photos, kit):
    run("train", photos, "--kit", kit, "--epochs", 1, "--out", "run")
    told = run("delta", "show", "run").stderr
    assert told == (
        "error: run is a run, not a delta; make one with: pocketune delta save run --out FILE\n"
    )
    for path in (kit, photos, photos / "red" / "0.png"):
        assert (
            f"error: {path} is not a delta; give a file that" in run("delta", "show", path).stderr
        )
    assert "cannot be read" in run("delta", "show", "nowhere").stderr


def test_show(run, saved, kit):
    result = run("delta", "show", saved)
    assert result.exit_code == 0
    told = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert told["kit"] == Kit.open(kit).identity
    assert told["classes"] == "3: blue, green, red"
    assert told["trained"] == "5 steps, accuracy 50.0%"
    assert told["holds"] == "4 tensors, 28 values"


def test_show_json(run, saved):
    told = json.loads(run("delta", "show", saved, "--json").stdout)
    described = " ".join(run("delta", "show", "--help").output.split())
    assert all(f'"{name}"' in described for name in told)
    assert told["tensors"]["fc.weight"] == [3, 6]
    assert told["task"]["classes"] == list(CLASSES)


def test_save_as_an_adapter(run):
    result = run("delta", "save", "last", "--out", "a.onnx_adapter", "--format", "onnx-adapter")
    assert result.exit_code == 0, result.output
    assert Path("a.onnx_adapter").read_bytes()[4:8] == b"TORT"  # the format's own mark


def test_predict_with_a_run_and_a_delta(run, saved, trained, photos):
    image = photos / "red" / "0.png"
    by_delta = run("predict", trained, image, "--delta", saved).stdout
    assert by_delta.replace(f" {saved}:", "") == run("predict", trained, image).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["delta", "show", "nowhere"], "error: nowhere cannot be read: "),
        (["delta", "show", "trained/best.safetensors"], "but not a Pocketune delta"),
        (["delta", "save", "nowhere", "--out", "x"], "there is no kit or run at nowhere"),
        (["delta", "apply", "blocks", "d.safetensors", "--out", "x"], "is a delta of the kit"),
        (["predict", "--kit", "last", "--delta", "d.safetensors", "."], "is a delta of the kit"),
        (["predict", "--kit", "trained", "nowhere.jpg"], "nowhere.jpg does not exist"),
    ],
)
def test_refused(run, saved, arguments, said):
    result = run(*arguments)
    assert result.exit_code == 1
    assert said in result.stderr


def test_predict_asks_for_photos(run, trained):
    result = run("predict", trained)
    assert result.exit_code == 2
    assert "Missing argument 'FILES...'" in result.stderr
