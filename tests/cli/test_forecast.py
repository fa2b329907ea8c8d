"""`pocketune kit forecast` in this process, on the smallest networks."""

import json

import pytest

from pocketune.weights import create_network

from ..networks.small import small_mobilenet
from ..onnx_import.files import exported, folded

SMALL = ["resnet18", "--width", 0.1, "--size", 32, "--batch", 2, "--classes", 3]


def test_says_what_training_would_take(run):
    result = run("kit", "forecast", *SMALL[:-1], 1200, "--method", "last")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["network"] == "resnet18 (width 0.1, padding symmetric, feature fusion True)"
    assert lines["classes"] == "1,200: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..."
    assert "with adam" in lines["memory"]
    assert lines["step"].endswith("ms (estimated, on this machine)")
    assert "kit" not in lines
    assert "made" not in lines


@pytest.mark.parametrize("more", [(), ("--first-blocks", 4)], ids=["whole", "first-blocks"])
def test_is_the_manifest_of_the_kit_that_is_built(run, tmp_path, more):
    found = json.loads(run("kit", "forecast", *SMALL[:-2], *more, "--json").stdout)
    assert run("kit", "build", *SMALL[:-2], *more, "--out", "kit.zip").exit_code == 0
    built = json.loads(run("kit", "show", "kit.zip", "--json").stdout)
    for name in ("graphs", "network", "method", "parameters", "trained_parameters"):
        assert found[name] == built[name], name
    assert found["training_memory"].keys() == built["training_memory"].keys()
    assert found["step_seconds"] > 0
    assert not list(tmp_path.glob("**/drafts"))


def test_a_network_in_a_file(run, tmp_path):
    small = create_network("resnet18", width=0.1, classes=3)
    file = exported(small, tmp_path / "small.onnx")
    step = ["--method", "last", "--size", 32, "--batch", 2]
    found = json.loads(run("kit", "forecast", file, *step, "--json").stdout)
    assert run("kit", "build", file, *step, "--out", "kit.zip").exit_code == 0
    built = json.loads(run("kit", "show", "kit.zip", "--json").stdout)
    for name in ("graphs", "method", "parameters", "trained_parameters"):
        assert found[name] == built[name], name
    more = json.loads(run("kit", "forecast", file, *step, "--classes", 9, "--json").stdout)
    assert len(more["task"]["classes"]) == 9
    result = run("kit", "forecast", file, *step, "--width", 0.5)
    assert result.exit_code == 1
    assert "--width 0.5 is not possible with" in result.stderr
    result = run("kit", "forecast", file)
    assert "takes images of 32 x 32 pixels, not 224 x 224: give --size 32\n" in result.stderr


def test_a_network_that_classifies_pixels(run):
    """Of Pascal VOC's classes without others, with a patch for each filtered layer."""
    network = ["pspnet", "--backbone", "mobilenet_v2", "--width", 0.1, "--head-channels", 8]
    method = ["--method", "gradfilter", "--method-option", "layers=2"]
    patch = ["--method-option", "patch=decode_head.bottleneck.0:4,"]
    result = run("kit", "forecast", *network, *method, *patch, *SMALL[3:-2])
    assert result.exit_code == 0, result.output
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert "patch {'decode_head.bottleneck.0': 4}, layers 2" in lines["method"]
    assert lines["classes"].startswith("21: ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["vgg16"], "there is no network 'vgg16'; choose from"),
        ([*SMALL, "--batch", 0], "--batch 0"),
        ([*SMALL, "--classes", 0], "--classes 0"),
        ([*SMALL, "--method", "magic"], "there is no method 'magic'"),
        ([*SMALL, "--frozen-bits", 5], "--frozen-bits 5"),
        ([*SMALL, "--first-blocks", 9], "--first-blocks 9 must be from 1 to 8"),
    ],
)
def test_what_cannot_be_forecast(run, options, said):
    result = run("kit", "forecast", *options)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [("kit", "forecast"), ("profile",)], ids=" ".join)
def test_norms_that_a_file_has_folded_are_measured_where_it_matters(
    run, tmp_path, recwarn, command
):
    """What training takes does not depend on their statistics, and there are no photos."""
    file = folded(exported(small_mobilenet(), tmp_path / "whole.onnx"), tmp_path / "net.onnx")
    result = run(*command, file, "--size", 32, "--batch", 2, "--method", "mobiletl", "--blocks", 1)
    assert result.exit_code == 0, result.output
    assert not [each for each in recwarn if "folded" in str(each.message)]
