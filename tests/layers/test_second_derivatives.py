"""Second derivatives of the layers are exact, or refused."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradgradcheck

from pocketune.errors import PocketuneError
from pocketune.filtering import FilteredConv2d
from pocketune.layers import (
    FrozenBatchNorm2d,
    FrozenConv2d,
    GroupNorm,
    MaskedReLU6,
    QuantizedConv2d,
    StandardizedConv2d,
)


def frozen(conv: nn.Conv2d) -> nn.Conv2d:
    conv.weight.requires_grad_(False)
    return conv


LAYERS = {
    "frozen": lambda: FrozenConv2d.from_convolution(frozen(nn.Conv2d(4, 2, 3, 2, 1, groups=2))),
    "quantized": lambda: QuantizedConv2d.from_convolution(nn.Conv2d(4, 2, 3, 2, 1)),
    "standardized": lambda: StandardizedConv2d(4, 2, 3),
    "group norm": lambda: GroupNorm(4),
    "frozen norm": lambda: FrozenBatchNorm2d(4),
    "masked": MaskedReLU6,
}


@pytest.mark.parametrize("name", LAYERS)
def test_they_are_exact(name: str) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    trained = {n: p for n, p in layer.named_parameters() if p.requires_grad}
    x = torch.randn(2, 4, 3, 4, dtype=torch.float64, requires_grad=True)

    def nonlinear(x: Tensor, *parameters: Tensor) -> Tensor:
        values = dict(zip(trained, parameters, strict=True))
        return torch.func.functional_call(layer, values, (x,)).square()

    assert gradgradcheck(nonlinear, (x, *trained.values()))


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("power", [1, 2])
def test_those_of_filtered_gradients_are_refused(power: int, bits: int) -> None:
    """Also where the gradient that comes in is a constant."""
    conv = FilteredConv2d(3, 4, 3, bits=bits)
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    for wanted in (x, conv.weight, conv.bias):
        loss = conv(x).pow(power).sum()
        (gradient,) = torch.autograd.grad(loss, wanted, create_graph=True)
        expected = torch.autograd.grad(conv(x).pow(power).sum(), wanted)[0]
        torch.testing.assert_close(gradient, expected)
        with pytest.raises(PocketuneError, match="no second derivatives; adapt the network with"):
            gradient.square().sum().backward()


def test_those_of_a_pooled_map_are_refused() -> None:
    first, second = FilteredConv2d(3, 4, 1), FilteredConv2d(4, 4, 1)
    first.passes_pooled = True
    loss = second(first(torch.randn(1, 3, 4, 4))).square().sum()
    (gradient,) = torch.autograd.grad(loss, first.weight, create_graph=True)
    with pytest.raises(PocketuneError, match="no second derivatives"):
        gradient.sum().backward()
