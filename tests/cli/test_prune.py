"""`pocketune prune` and the use of its file."""

import json
from pathlib import Path

import pytest
from safetensors.torch import save_file

from pocketune.kit import Kit
from pocketune.networks import about
from pocketune.weights import create_network, load_network, save_network

from ..weights.formats.test_folded import FACTS, fold

NARROW = ["mobilenet_v2", "--width", 0.1, "--size", 64]


def test_prune_then_make_a_kit(run, photos):
    options = ("--target", "110kB", "--out", "small.safetensors")
    result = run("prune", *NARROW, "--photos", photos, *options)
    assert result.exit_code == 0, result.output
    assert "features.2 " in result.stdout
    assert "peak for one image" in result.stdout
    hidden = about(load_network("small.safetensors")).config.hidden
    assert set(hidden) == {"features.2"}
    made = run(
        *("kit", "build", "mobilenet_v2", "--width", 0.1, "--weights", "small.safetensors"),
        *("--size", 32, "--batch", 2, "--method", "repnet", "--out", "kit"),
    )
    assert made.exit_code == 0, made.output
    assert Kit.open("kit").manifest.network["hidden"] == hidden
    assert "pruned in 1 block)\n" in run("kit", "show", "kit").stdout


def test_options_of_the_method_count(run):
    """The more blocks are trained, the more is kept. By weights, no photos are needed."""
    peaks = []
    for options in ([], ["--method-option", "blocks=12"]):
        result = run(
            *("prune", *NARROW, "--importance", "weight", "--method", "blocks", *options),
            *("--target", "10MB", "--out", "small.safetensors"),
        )
        assert result.exit_code == 0, result.output
        assert about(load_network("small.safetensors")).config.name == "mobilenet_v2"
        peaks.append(result.stdout.partition("peak for one image ")[2].partition(" bytes")[0])
    assert peaks[0] != peaks[1]


def test_norms_that_were_folded_away_need_photos(run):
    folded = fold(create_network("mobilenet_v2", width=0.1, feature_fusion=False))
    save_file(folded, "tiny.safetensors")
    Path("tiny.arch.json").write_text(json.dumps(FACTS))
    result = run(
        *("prune", "mobilenet_v2", "--width", 0.1, "--weights", "tiny.safetensors"),
        *("--padding", "symmetric", "--importance", "weight", "--out", "small.safetensors"),
    )
    assert result.exit_code == 1
    told = "were folded away; name photos to measure them on with --photos"
    assert told in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([*NARROW], "--importance l2 needs --photos"),
        ([*NARROW, "--importance", "weight", "--ignore", "void"], "--ignore needs --photos"),
        ([*NARROW, "--importance", "weight", "--target", "lots"], "or 1GB; or 'cumulative'"),
        ([*NARROW, "--photos", "empty"], "empty"),
        (
            [*NARROW, "--importance", "weight", "--method-option", "bias=true"],
            "--method-option needs --method",
        ),
        (["vgg16", "--importance", "weight"], "there is no network 'vgg16'"),
        ([*NARROW, "--importance", "weight", "--weights", "pruned.safetensors"], "pruned already"),
    ],
)
def test_refusals(run, options, said):
    Path("empty").mkdir()
    if "pruned.safetensors" in options:
        save_network(
            create_network("mobilenet_v2", width=0.1, hidden={"features.2": 9}), options[-1]
        )
    result = run("prune", *options, "--out", "small.safetensors")
    assert result.exit_code == 1
    assert said in result.stderr
    assert not Path("small.safetensors").exists()


def test_a_file_that_cannot_be_saved_is_refused_before_the_work(run, monkeypatch):
    monkeypatch.setattr("pocketune.pruning.plan_pruning", None)
    result = run("prune", *NARROW, "--importance", "weight", "--out", "small.bin")
    assert result.exit_code == 1
    assert "small.bin must end in .safetensors" in result.stderr
