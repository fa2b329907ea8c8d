"""A pretrained MobileNetV2 as a sub-network."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.supernet.small import images
from torch import nn

from pocketune.errors import PocketuneError
from pocketune.methods import LastLayer, TinyTL, adapt
from pocketune.networks import Normalization, about
from pocketune.supernet import Supernet, pretrained_config
from pocketune.weights import create_network


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    made = create_network(
        "mobilenet_v2", width=0.35, classes=4, padding="same", normalization=Normalization.HALF
    )
    for buffer in made.buffers():
        if buffer.is_floating_point():
            buffer += 0.1 * torch.rand_like(buffer)
    return made.eval()


def test_the_sub_network_of_its_config_gives_its_outputs(network: nn.Module) -> None:
    supernet = Supernet.from_network(network, sizes=(64,)).eval()
    config, x = pretrained_config(supernet.space), images(64)
    assert config.depths == (2, 3, 4, 3, 3)
    with torch.no_grad():
        assert torch.equal(supernet.subnet(config)(x), network(x))
        larger = replace(config, kernels=(7,) * 21, depths=(4,) * 5)
        torch.testing.assert_close(supernet.subnet(larger)(x), network(x))
    assert about(supernet).normalization == Normalization.HALF
    assert supernet.space.padding == "same"


def test_weights_without_feature_fusion() -> None:
    network = create_network("mobilenet_v2", width=0.1, classes=4, feature_fusion=False).eval()
    supernet = Supernet.from_network(network, sizes=(64,)).eval()
    with torch.no_grad():
        made = supernet.subnet(pretrained_config(supernet.space))
        assert torch.equal(made(images(64)), network(images(64)))


def test_modules_are_taken_over(network: nn.Module) -> None:
    complete = TinyTL().insert_modules(network).eval()
    for branch in (m for n, m in complete.named_modules() if n.endswith("branch")):
        nn.init.ones_(branch.norm2.weight)
    options = {"sizes": (64,), "module_groups": (2, 4), "module_kernels": (3, 5)}
    supernet = Supernet.from_network(complete, **options).eval()
    with torch.no_grad():
        made = supernet.subnet(pretrained_config(supernet.space))
        assert torch.equal(made(images(64)), complete(images(64)))
    with pytest.raises(PocketuneError, match="for which the space has no place"):
        Supernet.from_network(complete)


def test_what_does_not_fit_is_refused(network: nn.Module) -> None:
    with pytest.raises(PocketuneError, match="width are those of the network"):
        Supernet.from_network(network, width=1.0)
    with pytest.raises(PocketuneError, match="depths up to 4"):
        Supernet.from_network(network, depths=(2, 3))
    for other in (adapt(network, LastLayer()), create_network("resnet18"), nn.Linear(2, 2)):
        with pytest.raises(PocketuneError, match="neither pruned nor"):
            Supernet.from_network(other)
