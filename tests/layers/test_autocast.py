"""Under autocast, layers with a backward pass of their own compute in fewer bits, as PyTorch's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pocketune.filtering import FilteredConv2d
from pocketune.layers import FrozenConv2d, QuantizedConv2d


def filtered(bits: int) -> Callable[[nn.Conv2d], nn.Module]:
    return lambda conv: FilteredConv2d.from_convolution(conv.requires_grad_(), bits=bits)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(
    "make",
    [FrozenConv2d.from_convolution, QuantizedConv2d.from_convolution, filtered(32), filtered(8)],
    ids=["frozen", "quantized", "filtered", "filtered8"],
)
def test_gradients_are_those_of_float32_but_for_rounding(
    make: Callable[[nn.Conv2d], nn.Module], kernel: int
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(8, 8, kernel, padding=kernel // 2)
    conv.weight.requires_grad_(False)
    layer, x = make(conv), torch.randn(2, 8, 6, 6, requires_grad=True)
    g = torch.randn(2, 8, 6, 6)

    def gradients(enabled: bool) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            y = layer(x)
        trained = [p for p in layer.parameters() if p.requires_grad]
        return list(torch.autograd.grad(y, [x, *trained], g.to(y.dtype)))

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() < 0.02 * expected.norm()
