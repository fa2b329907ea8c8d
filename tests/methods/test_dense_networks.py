"""Methods on networks that classify pixels: what is trained, ours and anybody's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.errors import PocketuneError
from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import (
    BiasAndLast,
    FullFineTune,
    GradientFilter,
    LastLayer,
    Method,
    MobileTL,
    NormAndLast,
    RepNet,
    SignedBackward,
    TinyTL,
    TopBlocks,
    adapt,
)
from pocketune.networks import anatomy, list_networks
from pocketune.weights import create_network

METHODS = [
    LastLayer(),
    NormAndLast(),
    BiasAndLast(),
    FullFineTune(),
    TopBlocks(blocks=1) + SignedBackward(),
    TopBlocks(blocks=1) + GradientFilter(layers="trained"),
    MobileTL(blocks=1),
    TinyTL(lite_residual=False),
    TinyTL(),
    RepNet(),
    GradientFilter(layers=5),
]


def network(name: str, backbone: str | None = None) -> nn.Module:
    torch.manual_seed(0)
    return create_network(name, backbone=backbone, width=0.1, head_channels=8, classes=3)


def step(adapted: nn.Module) -> set[str]:
    """Names of the parameters that get a gradient."""
    logits = adapted.train()(torch.randn(2, 3, 32, 32))
    loss = functional.cross_entropy(logits, torch.ones(2, *logits.shape[2:], dtype=torch.long))
    loss.backward()
    return {name for name, p in adapted.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("name", "backbone", "method"),
    [  # each method on two of three networks
        (*names, method)
        for row, names in enumerate(
            [("deeplabv3", "mobilenet_v2"), ("upernet", None), ("lraspp", "mobilenet_v3_small")]
        )
        for place, method in enumerate(METHODS)
        if (row + place) % 3
    ],
    ids=str,
)
def test_one_step(name: str, backbone: str | None, method: Method) -> None:
    adapted = adapt(network(name, backbone), method)
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert step(adapted) == trained
    assert {"classifier.0.weight", "classifier.1.weight"} & trained


@pytest.mark.parametrize("name", list_networks(dense=True))
def test_blocks_are_trained_with_the_decode_head(name: str) -> None:
    original = network(name)
    last = anatomy(original).blocks[-1].name
    adapted = adapt(original, TopBlocks(blocks=1))
    names = {name for name, p in adapted.named_parameters() if p.requires_grad}
    whole = {n for n, _ in original.named_parameters() if n.startswith(("decode_head.", "classif"))}
    fusion = {n for n in names if n.startswith("backbone.") and not n.startswith(f"{last}.")}
    assert names - fusion == whole | {
        n for n, _ in original.named_parameters() if n.startswith(f"{last}.")
    }
    assert bool(fusion) is (name == "lraspp")


def test_mobiletl_trains_the_decode_head_in_full() -> None:
    adapted = adapt(network("pspnet", "mobilenet_v2"), MobileTL(blocks=1))
    norms = {type(m) for m in adapted.decode_head.modules() if hasattr(m, "running_mean")}
    assert norms == {nn.BatchNorm2d}
    assert isinstance(adapted.backbone["16"].conv[3], FrozenBatchNorm2d)


class Foreign(nn.Module):
    """Convolutions in no known order, and a classifier of pixels between them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Conv2d(8, 3, 1)
        self.down = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), nn.BatchNorm2d(8), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(x)
        return functional.interpolate(self.scores(y + self.up(self.deep(y))), scale_factor=2.0)


@pytest.mark.parametrize(
    "method",
    [
        LastLayer(),
        NormAndLast(),
        BiasAndLast(),
        FullFineTune(),
        GradientFilter(layers=("deep.0",)),
        LastLayer() + GradientFilter(layers=("down.0",)),
    ],
    ids=str,
)
def test_anybodys_network(method: Method) -> None:
    adapted = adapt(Foreign(), method)
    trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
    assert {"scores.weight", "scores.bias"} <= trained == step(adapted)


def test_anybodys_network_has_no_blocks() -> None:
    for method in (TopBlocks(), MobileTL(), GradientFilter(layers=2)):
        with pytest.raises(PocketuneError, match="LastLayer, NormAndLast"):
            adapt(Foreign(), method)
