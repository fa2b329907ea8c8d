"""Steps of networks that classify pixels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pocketune.accounting import account
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, GradientFilter, LastLayer, TopBlocks, adapt
from pocketune.tasks import Segmentation, numbered
from pocketune.weights import create_network

OPTIONS = {"backbone": "resnet18", "width": 0.1, "head_channels": 8, "classes": 5}


def dense(name: str = "deeplabv3") -> nn.Module:
    return create_network(name, **OPTIONS)


def test_the_loss_is_that_of_segmentation_at_the_size_of_the_image() -> None:
    adapted = adapt(dense(), LastLayer())
    report = account(adapted, batch=2, size=64)
    assert report == account(adapted, batch=2, size=64, task=Segmentation(numbered(5)))
    peaks = {layer.name: layer.peak_bytes for layer in report.layers}
    resized = 2 * 5 * 64 * 64 * 4
    assert peaks["loss"] > resized
    small = account(adapted, batch=2, size=64, loss=torch.sum)
    assert {layer.name: layer.peak_bytes for layer in small.layers}["loss"] < peaks["loss"]


@pytest.mark.parametrize("name", ["pspnet", "deeplabv3", "upernet"])
def test_less_is_trained_and_kept(name: str) -> None:
    """Kept: full, five layers, five filtered layers. A decode head lies above all blocks."""
    patches = dict.fromkeys(("decode_head.bottleneck.0",), 4)
    methods = [
        FullFineTune(),
        TopBlocks(blocks=0),
        GradientFilter({}, layers=("decode_head.bottleneck.0",)),
        GradientFilter(patches),
        LastLayer(),
    ]
    kept = [account(adapt(dense(name), method), batch=2, size=64).kept_bytes for method in methods]
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) == len(kept)


def test_anybodys_network_names_its_task() -> None:
    network = nn.Conv2d(3, 5, 3, padding=1)
    with pytest.raises(PocketuneError, match=r"give its task, such as Segmentation\(classes\)"):
        account(network, batch=2, size=16)
    assert account(network, batch=2, size=16, task=Segmentation(numbered(5))).kept_bytes > 0
