"""Low-rank updates of linear layers and 1x1 convolutions."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from pocketune.layers import LowRank, product


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 5), (2, 6)),
        (nn.Linear(6, 5), (2, 3, 6)),
        (nn.Conv2d(6, 5, 1), (2, 6, 4, 3)),
        (nn.Conv2d(6, 5, 1, stride=2), (2, 6, 5, 4)),
    ],
)
def test_an_update_is_a_layer_of_the_product(layer: nn.Module, shape: tuple[int, ...]) -> None:
    layer, x = layer.double(), torch.randn(*shape, dtype=torch.float64)
    update = LowRank(layer, 2).double()
    assert torch.equal(update(x), torch.zeros_like(layer(x)))  # it adds nothing at first

    nn.init.normal_(update.up.weight)
    merged = layer.weight + product(update.down.weight, update.up.weight)
    if isinstance(layer, nn.Linear):
        expected = functional.linear(x, merged, layer.bias)
    else:
        expected = functional.conv2d(x, merged, layer.bias, layer.stride)
    torch.testing.assert_close(layer(x) + update(x), expected)
