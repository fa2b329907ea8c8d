"""`pocketune pretrain-supernet`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image
from torch import nn

from pocketune.cli import app
from pocketune.distillation.checkpoint import hash_values
from pocketune.supernet import load_supernet, pretrained_config
from pocketune.weights import create_network, save_network

pytest.importorskip("lightning_fabric")

SMALL = ["--width", "0.1", "--sizes", "24,32", "--batch", "4", "--epochs", "1"]
SMALL += ["--accelerator", "cpu"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name in ("dark", "light"):
        (folder / name).mkdir()
        for number in range(6):
            pixels = rng.integers(0, 255, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


def run(photos: Path, out: Path, *arguments: str) -> Result:
    command = ["pretrain-supernet", str(photos), "--out", str(out), *SMALL, *arguments]
    return CliRunner().invoke(app, command)


def test_a_space_is_described_by_options(photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "supernet.safetensors"
    choices = ["--depths", "1", "--kernels", "3", "--expansions", "3,2", "--first", "reduced"]
    done = run(photos, out, *choices, "--lite-residual", "--norm", "group", "--start", "width")
    assert done.exit_code == 0, done.output
    space = load_supernet(out).space
    assert (space.width, space.classes, space.sizes) == (0.1, 2, (24, 32))
    assert (space.depths, space.kernels, space.expansions) == ((1,), (3,), (2, 3))
    assert (space.first, space.norm, space.module_groups) == ("reduced", "group", (2, 4))
    assert "mean loss of the last epoch" in done.stdout
    said = re.findall(r"(\w+) sub-network, (\d+) px: [\d.]+% of 2 validation photos", done.stdout)
    assert said == [("smallest", "24"), ("largest", "32")]


def test_weights_are_shrunk_with_photos_of_any_classes(photos: Path, tmp_path: Path) -> None:
    weights, out = tmp_path / "weights.safetensors", tmp_path / "supernet.safetensors"
    save_network(create_network("mobilenet_v2", width=0.1, classes=5), weights)
    taught = ["--weights", str(weights), "--start", "width", "--expansions", "3,6"]
    done = run(photos, out, *taught)
    assert done.exit_code == 0, done.output
    space = load_supernet(out).space
    assert (space.channels, space.classes, space.depths) == ("mobilenet_v2", 5, (2, 3, 4))
    assert "validation photos" not in done.stdout, "they are of other classes"


def test_a_repeated_command_begins_with_the_same_values(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[nn.Module] = []
    monkeypatch.setattr(
        "pocketune.shrinking.pretrain_supernet", lambda made, *_, **__: begun.append(made)
    )
    weights, out = tmp_path / "weights.safetensors", tmp_path / "supernet.safetensors"
    save_network(create_network("mobilenet_v2", width=0.1, classes=5), weights)
    for seed in ("0", "0", "1"):
        given = ("--weights", str(weights), "--lite-residual", "--seed", seed)
        assert run(photos, out, *given).exit_code == 0
    first, again, other = map(hash_values, begun)
    assert first == again != other


def test_weights_that_are_not_shrunk(photos: Path, tmp_path: Path) -> None:
    weights, out = tmp_path / "weights.safetensors", tmp_path / "supernet.safetensors"
    network = create_network("mobilenet_v2", width=0.1, classes=5)
    save_network(network, weights)
    done = run(photos, out, "--weights", str(weights), "--epochs", "0")
    assert done.exit_code == 0, done.output
    assert f"saved in {out}" in done.stdout
    made = load_supernet(out)
    pretrained = made.subnet(pretrained_config(made.space)).eval()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(pretrained(images), network.eval()(images), rtol=1e-4, atol=1e-5)
    block = made.network.get_submodule("features.3.conv")
    (*_, projection) = [each for each in block.modules() if isinstance(each, nn.Conv2d)]
    sizes = projection.weight.abs().sum((0, 2, 3))
    assert torch.equal(sizes, sizes.sort(descending=True).values)


def test_accuracies_are_of_so_many_validation_photos_as_are_measured(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, out = tmp_path / "weights.safetensors", tmp_path / "supernet.safetensors"
    save_network(create_network("mobilenet_v2", width=0.1, classes=2), weights)
    given = ("--weights", str(weights), "--epochs", "0")
    monkeypatch.setattr("pocketune.extractor.measuring.HELD", 1)
    assert "% of 1 validation photos are right" in run(photos, out, *given).stdout
    for name in ("dark", "light"):
        (tmp_path / "few" / name).mkdir(parents=True)
        (tmp_path / "few" / name / "0.png").write_bytes((photos / name / "0.png").read_bytes())
    done = run(tmp_path / "few", out, *given)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == f"saved in {out}"
    assert "validation photos" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes", "small"], "--sizes 'small' must be whole numbers above 0 with commas"),
        (["--kernels", "3,4"], "--kernels and module_kernels must be odd"),
        (["--teacher", "none.safetensors"], "there is no file none.safetensors"),
        (
            ["--epochs", "0"],
            "--epochs 0 trains nothing, .*: give pretrained weights with --weights",
        ),
        (["--out", "supernet.pth"], "supernet.pth must end in .safetensors"),
    ],
)
def test_what_makes_no_sense_is_refused(
    photos: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = run(photos, tmp_path / "supernet.safetensors", *arguments)
    assert done.exit_code == 1
    assert re.search(said, done.stderr)
