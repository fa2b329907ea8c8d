"""`pocketune kit build` in this process, on the smallest networks."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file

from pocketune import authoring
from pocketune.kit import Kit
from pocketune.weights import create_network

from ..device.softmax_engine import CLASSES
from ..onnx_import.files import exported

SMALL = ["resnet18", "--width", 0.1, "--size", 32, "--batch", 2]


@pytest.fixture(autouse=True)
def waiting(monkeypatch):
    """Restores how PyTorch's threads wait, which building a kit sets."""
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "unset")
        monkeypatch.delenv(name)


def test_build(run, photos):
    result = run(
        *("kit", "build", *SMALL, "--out", "kit.zip", "--photos", photos, "--method", "last"),
        *("--save-network", "network.safetensors", "--label-smoothing", 0.1),
    )
    assert result.exit_code == 0, result.output
    built, wrote = result.stdout.splitlines()
    assert built == "built a kit of resnet18: 32 px, batch 2, method last"
    taken = r"wrote kit.zip: training takes \d+ MB with adam \(predicted, whole process\)"
    assert re.fullmatch(taken, wrote)
    assert "starts from random weights" in result.stderr
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["GOMP_SPINCOUNT"] == "10000"
    manifest = Kit.open("kit.zip").manifest
    assert manifest.classes == CLASSES
    assert (manifest.size, manifest.batch, manifest.task.label_smoothing) == (32, 2, 0.1)
    assert manifest.method == {"name": "last"}
    assert manifest.network["width"] == 0.1
    values = load_file("network.safetensors")
    assert values["fc.weight"].shape[0] == 3
    assert "conv1.weight" in values  # frozen, and there all the same
    assert json.loads(run("kit", "show", "kit.zip", "--json").stdout)["method"]["name"] == "last"
    assert "(placeholders: it is not trained)" in run("kit", "show", "kit.zip").stdout
    for command in ("predict", "evaluate"):
        note = "note: kit.zip knows no classes before it is trained: its classifier is random"
        assert note in run(command, "kit.zip", photos).stderr


@pytest.mark.parametrize("budget", ["2MB", "20GB"])
def test_a_budget_is_checked_before_the_kit_is_compiled(run, monkeypatch, budget):
    compiled = []
    monkeypatch.setattr(
        authoring, "check_and_write", lambda *_: compiled.append(1) or NotImplemented
    )
    result = run("kit", "build", *SMALL, "--classes", 3, "--out", "kit", "--budget", budget)
    assert bool(compiled) == (budget == "20GB")
    if not compiled:
        assert result.exit_code == 1
        said = r"error: the budget of 2\.0 MB is \d+ MB short: training takes at least \d+ MB \(.*"
        assert re.fullmatch(said, result.stderr.splitlines()[-1])
        assert not Path("kit").exists()


def test_build_for_a_number_of_classes(run, photos):
    built = run("kit", "build", *SMALL, "--method", "last", "--classes", 3, "--out", "kit.zip")
    assert built.exit_code == 0, built.output
    assert Kit.open("kit.zip").manifest.classes == ("0", "1", "2")
    options = ("--classes", 3, "--photos", photos, "--out", "other.zip")
    refused = run("kit", "build", *SMALL, *options)
    assert "error: --classes 3 is not possible with photos" in refused.stderr


def test_build_from_an_onnx_file(run, photos):
    torch.manual_seed(0)
    network = create_network("resnet18", width=0.1, classes=5)
    exported(network, Path("model.onnx"))
    step = ["--size", 32, "--batch", 2, "--method", "last", "--normalization", "half"]
    assert run("kit", "build", "model.onnx", *step, "--out", "five.zip").exit_code == 0
    assert len(Kit.open("five.zip").manifest.classes) == 5
    built = run("kit", "build", "model.onnx", *step, "--photos", photos, "--out", "kit.zip")
    said = "built a kit of model.onnx: 32 px, batch 2, method last\nwrote kit.zip: training takes "
    assert built.stdout.startswith(said)
    assert Kit.open("kit.zip").manifest.classes == CLASSES
    refused = run("kit", "build", "model.onnx", "--width", 0.5, "--out", "other.zip")
    assert "--width 0.5 is not possible with model.onnx" in refused.stderr


@pytest.mark.parametrize("bits", [8, 32])
def test_what_is_shown_of_frozen_bits_is_what_was_asked_for(run, bits):
    """It overrides the method's default, which is 8."""
    method = ["--method", "mobiletl", "--blocks", 2]
    result = run("kit", "build", *SMALL, *method, "--frozen-bits", bits, "--out", "kit.zip")
    assert result.exit_code == 0, result.output
    shown = run("kit", "show", "kit.zip").stdout
    assert "frozen_bits" not in shown
    assert ("frozen part  features.onnx, float32" in shown) == (bits == 32)
    assert ("in 8 bits" in shown) == (bits == 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["vgg16"], "there is no network 'vgg16'; choose from"),
        ([*SMALL, "--method", "magic"], "there is no method 'magic'; choose from"),
        ([*SMALL, "--method", "last", "--blocks", 3], "method last has no option blocks"),
        ([*SMALL, "--blocks", 99], "--blocks 99 does not fit a network of 8 blocks"),
        ([*SMALL, "--weights", "no.pth"], "there is no weights file no.pth"),
        ([*SMALL, "--photos", "nowhere"], "nowhere does not exist"),
        ([*SMALL, "--class-names", "names.txt"], "--class-names needs --photos"),
        ([*SMALL, "--batch", 0], "--batch 0"),
        ([*SMALL, "--classes", 1], "--classes 1 leaves the task classification nothing to tell"),
        ([*SMALL, "--label-smoothing", 2], "--label-smoothing 2.0 must lie in [0, 1)"),
        (["resnet18", "--width", -1], "--width -1.0 must be a number above 0"),
    ],
)
def test_refusals(run, options, said):
    result = run("kit", "build", "--out", "kit", *options)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert said in error
    assert not Path("kit").exists()


def test_photos_of_another_task_are_refused_as_training_would_refuse_them(run, photos):
    result = run("kit", "build", *SMALL, "--task", "attributes", "--photos", photos, "--out", "kit")
    assert result.exit_code == 1
    assert "each image a class by its folder, but attributes are needed" in result.stderr
    assert not Path("kit").exists()


def test_photos_that_calibrate_nothing_give_no_warning_of_it(run, photos, recwarn):
    """They are given for their classes, and here nothing is frozen."""
    method = "--method", "full", "--frozen-bits", 8
    result = run("kit", "build", *SMALL, *method, "--photos", photos, "--out", "kit")
    assert result.exit_code == 0
    assert not [each for each in recwarn if "calibration" in str(each.message)]


def test_an_unknown_network_gives_no_warning_of_random_weights(run):
    result = run("kit", "build", "--out", "kit", "vgg16")
    assert "warning" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: there is no network")


def test_without_the_author_half(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [
        name
        for name in sys.modules
        if name.startswith(("pocketune.compiler", "pocketune.authoring"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    result = run("kit", "build", *SMALL, "--out", "kit")
    assert result.exit_code == 1
    assert 'pip install "pocketune[author]"' in result.stderr


@pytest.mark.parametrize("name", ["networks", "methods"])
def test_lists_without_the_author_half(run, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [
        m
        for m in sys.modules
        if m.startswith(("pocketune.net", "pocketune.meth", "pocketune.weights"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    result = run(name)
    assert result.exit_code == 1
    assert not result.stdout
    assert f"error: listing {name} needs torch, which is not installed;" in result.stderr


def test_an_unknown_task_is_answered_with_the_known_ones(run, tmp_path):
    options = ("--task", "poetry", "--out", str(tmp_path / "kit"))
    result = run("kit", "build", "mcunet_5fps", *options)
    assert result.exit_code == 1
    assert (
        "unknown task 'poetry': choose one of classification, segmentation, attributes"
        in result.stderr
    )
    assert not (tmp_path / "kit").exists()


def test_check(run):
    done = run("kit", "check", "last")
    assert done.exit_code == 0
    assert done.stdout.endswith("this kit can be used\n")
    assert "training step           runs, with a loss of" in done.stdout
    refused = run("kit", "check", "nowhere.zip")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: there is no kit or run at nowhere.zip")
