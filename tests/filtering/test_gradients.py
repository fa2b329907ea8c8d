"""Gradients on the maps of patches against PyTorch's own, above and below the size that decides."""

import pytest
import torch
from torch.nn import functional

from pocketune.filtering.gradients import input_gradient, kernel_gradient


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("side", [2, 40])
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(48, 64, 1), (48, 32, 4), (32, 32, 32), (3, 3, 1)]
)
def test_gradients_of_a_1x1_convolution(
    inputs: int, outputs: int, groups: int, side: int, last: bool
) -> None:
    def channels(count: int) -> torch.Tensor:
        maps = torch.randn(2, count, side, side, dtype=torch.float64)
        return maps.contiguous(memory_format=torch.channels_last) if last else maps

    x, g = channels(inputs).requires_grad_(), channels(outputs)
    kernel = torch.randn(outputs, inputs // groups, 1, 1, dtype=torch.float64, requires_grad=True)
    functional.conv2d(x, kernel, groups=groups).backward(g)

    of_x = input_gradient(g, kernel.detach(), [0, 0], groups)
    of_kernel = kernel_gradient(g, x.detach(), groups)
    torch.testing.assert_close(of_x, x.grad)
    torch.testing.assert_close(of_kernel, kernel.grad)
    assert of_x.is_contiguous(memory_format=torch.channels_last) == last
