"""Copies of networks that have kept a tensor of their last forward pass."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pocketune import account, compile
from pocketune.methods import GradientFilter, LastLayer, Method, TopBlocks, adapt
from pocketune.networks.copies import copy_network
from pocketune.weights import create_network


class Notes(nn.Module):
    """Notes what it is given, in several places."""

    def forward(self, x: Tensor) -> Tensor:
        self.features = 2 * x
        self.more = [{"features": 2 * x}, x.detach()]
        return x


@pytest.fixture
def network() -> nn.Module:
    network = create_network("mobilenet_v2", width=0.35, classes=3)
    network.classifier[0] = Notes()
    network(torch.randn(2, 3, 32, 32))
    return network


def test_the_copy_has_values_without_a_graph(network: nn.Module) -> None:
    notes = network.classifier[0]
    copied = copy_network(network).classifier[0]
    for made, own in (
        (copied.features, notes.features),
        (copied.more[0]["features"], notes.more[0]["features"]),
    ):
        assert torch.equal(made, own)
        assert made is not own
        assert not made.requires_grad
    assert notes.features.grad_fn is not None


@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1) + GradientFilter(layers="trained")])
def test_it_is_adapted_and_compiled(network: nn.Module, method: Method, tmp_path: Path) -> None:
    adapted = adapt(network, method)
    adapted(torch.randn(2, 3, 32, 32))
    assert account(adapted, batch=2, size=32).peak.memory.total > 0
    compile(adapted, tmp_path / "kit", batch=2, size=32)
