"""Convolutions whose kernels hooks compute from other parameters."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import utils

from pocketune.errors import PocketuneError
from pocketune.methods import GradientFilter, LastLayer, Method, MobileTL, TinyTL, TopBlocks, adapt
from pocketune.weights import create_network

KINDS = [utils.spectral_norm, utils.weight_norm, utils.parametrizations.weight_norm]


def network(kind: Callable[[nn.Module], nn.Module]) -> nn.Module:
    made = create_network("resnet18", classes=3)
    for module in list(made.layer4.modules()):
        if isinstance(module, nn.Conv2d):
            kind(module)
    return made


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [LastLayer(), TopBlocks(1), MobileTL(1)], ids=str)
def test_they_stay_as_they_are(kind: Callable[[nn.Module], nn.Module], method: Method) -> None:
    original = network(kind)
    adapted = adapt(original, method, frozen_bits=32)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(
        adapted.eval()(images), original.eval()(images), rtol=1e-3, atol=1e-4
    )
    adapted.train()(images).square().sum().backward()
    for name, parameter in adapted.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "method", [GradientFilter(layers=1), TinyTL(norm="group", lite_residual=False)], ids=str
)
def test_methods_that_take_their_place_refuse_them_by_name(
    kind: Callable[[nn.Module], nn.Module], method: Method
) -> None:
    with pytest.raises(PocketuneError, match=r"layer4\.\d\.conv\d.*Conv2d"):
        adapt(network(kind), method)
