"""Output layers that are settled when a network is adapted, in a kit."""

from pathlib import Path

import pytest
from torch import nn

from pocketune.compiler import compile
from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, TopBlocks, adapt

from ..networks import modern
from ..surgery.test_heads import Distilled


@pytest.mark.parametrize(
    ("mode", "head"),
    [
        ("mean", "4.head"),
        ("different", "4.head_dist.linear"),
        ("different, stacked", "4.head_dist.linear"),
    ],
)
def test_averaged_heads(mode: str, head: str, tmp_path: Path) -> None:
    network = modern.with_trunk(modern.RepBlock(8, 16))
    network[-1] = Distilled(mode)
    kit = compile(adapt(network, LastLayer()), tmp_path / "kit", batch=2, size=16)
    assert kit.manifest.task.head == (f"{head}.weight", f"{head}.bias")
    assert kit.manifest.embeddings is not None


@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1)], ids=str)
def test_a_convolution_without_a_bias(method: LastLayer | TopBlocks, tmp_path: Path) -> None:
    pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = modern.with_trunk(modern.RepBlock(8, 16))
    network = nn.Sequential(*network[:2], nn.Conv2d(16, 3, 1, bias=False), *pooled)
    kit = compile(adapt(network, method), tmp_path / "kit", batch=2, size=16)
    assert kit.manifest.task.head == ("2.weight", "2.bias")


@pytest.mark.parametrize("last", [nn.Softmax(dim=1), nn.Sigmoid()], ids=type)
def test_probabilities_in_place_of_scores(last: nn.Module, tmp_path: Path) -> None:
    network = modern.with_trunk(modern.RepBlock(8, 16)).append(last)
    name = type(last).__name__.lower()
    told = f"Sequential ends in a {name}, and the loss and the predictions have a softmax"
    with pytest.raises(PocketuneError, match=told):
        compile(adapt(network, LastLayer()), tmp_path / "kit", batch=2, size=16)
