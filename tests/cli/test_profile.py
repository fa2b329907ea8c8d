"""`pocketune profile` in this process, on the smallest networks."""

import json
import sys
from pathlib import Path

import pytest

from pocketune.accounting.render import megabytes
from pocketune.weights import create_network

from ..onnx_import.files import exported

SMALL = ("profile", "resnet18", "--width", 0.1, "--classes", 4, "--size", 32, "--batch", 2)


def test_the_table_and_the_json_agree(run):
    table = run(*SMALL, "--method", "last")
    assert table.exit_code == 0, table.output
    data = json.loads(run(*SMALL, "--method", "last", "--json").stdout)
    assert megabytes(data["total_bytes"]) in table.stdout
    assert data["network"] == "resnet18"
    assert f"the worst block is {data['worst_block']}." in table.stdout
    assert data["total_bytes"] == sum(data["peak"]["bytes"].values())


def test_a_network_in_a_file_as_that_of_its_name(run, tmp_path):
    file = exported(create_network("resnet18", width=0.1, classes=3), tmp_path / "small.onnx")
    step = ("--method", "blocks", "--size", 32, "--batch", 2, "--json")
    found = json.loads(run("profile", file, *step).stdout)
    named = json.loads(run(*SMALL[:4], "--classes", 3, *step).stdout)
    assert found["total_bytes"] == pytest.approx(named["total_bytes"], rel=0.01)


def test_layers(run):
    result = run(*SMALL, "--method", "blocks", "--blocks", 1, "--by", "layer")
    assert result.exit_code == 0, result.output
    assert "layer4.1.conv1" in result.stdout


@pytest.mark.parametrize(
    "convention", ["tinytl", "mobiletl", "mobiletl-stored", "repnet", "gradfilter"]
)
def test_published(run, convention):
    options = (*SMALL, "--method", "last", "--published", convention)
    data = json.loads(run(*options, "--json").stdout)
    assert data["convention"] == convention
    if convention == "tinytl":
        assert megabytes(data["total_bytes"]) in run(*options).stdout


def test_a_frozen_part_in_8_bits_is_smaller(run):
    def bytes_of(bits):
        result = run(*SMALL, "--method", "blocks", "--frozen-bits", bits, "--json")
        return json.loads(result.stdout)["total_bytes"]

    assert bytes_of(8) < bytes_of(32)


def test_papers_have_frozen_bits_of_their_own(run):
    result = run(*SMALL, "--published", "tinytl", "--frozen-bits", 8)
    assert result.exit_code == 2
    assert "cannot be combined with --published" in result.stderr


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_plot(run, ending):
    pytest.importorskip("matplotlib")
    result = run(*SMALL, "--method", "last", "--plot", f"new/step.{ending}")
    assert result.exit_code == 0, result.output
    start = Path(f"new/step.{ending}").read_bytes()[:8]
    assert start == (b"\x89PNG\r\n\x1a\n" if ending == "png" else b"<?xml ve")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "magic"], "there is no method 'magic'; choose from"),
        (["--frozen-bits", 4], "--frozen-bits 4"),
        (["--batch", 0], "--batch 0 must be a whole number of at least 1"),
        (["--size", 0], "--size 0 must be a whole number of at least 1"),
        (["--method", "last", "--plot", "step.gif"], "step.gif cannot be drawn"),
        (["--method", "last", "--plot", f"{__file__}/a.svg"], "a.svg cannot be written"),
    ],
)
def test_refusals(run, options, said):
    if "cannot be written" in said:
        pytest.importorskip("matplotlib")
    result = run(*SMALL, *options)
    assert result.exit_code == 1
    assert said in result.stderr


def test_plot_without_matplotlib(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("pocketune.accounting.account", None)  # nothing is computed before
    result = run(*SMALL, "--method", "last", "--plot", "step.svg")
    assert result.exit_code == 1
    assert 'pip install "pocketune[plot]"' in result.stderr


def test_a_figure_of_what_is_published_is_refused(run):
    result = run(*SMALL, "--published", "tinytl", "--plot", "step.svg")
    assert result.exit_code == 2
    assert "cannot be combined with --published" in result.stderr
