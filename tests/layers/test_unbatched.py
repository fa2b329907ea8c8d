"""Convolutions take one map without a batch, as `nn.Conv2d` does."""

import pytest
import torch
from torch import nn

from pocketune.filtering import FilteredConv2d
from pocketune.layers import FrozenConv2d, QuantizedConv2d


def filtered(conv: nn.Conv2d) -> FilteredConv2d:
    made = FilteredConv2d.from_convolution(conv)
    made.passes_pooled = True
    return made


@pytest.mark.parametrize(
    "make", [filtered, FrozenConv2d.from_convolution, QuantizedConv2d.from_convolution]
)
def test_as_a_batch_of_one(make: object) -> None:
    conv = nn.Conv2d(3, 4, 3, 2, 1)
    conv.weight.requires_grad_(make is filtered)
    layer = make(conv)
    x = torch.randn(3, 7, 6, requires_grad=True)
    wanted = [x, *(p for p in layer.parameters() if p.requires_grad)]
    y = layer(x)
    assert y.shape == (4, 4, 3)
    found = torch.autograd.grad(y.square().sum(), wanted)
    layer.passes_pooled = False
    expected = torch.autograd.grad(layer(x.unsqueeze(0)).square().sum(), wanted)
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), y)
