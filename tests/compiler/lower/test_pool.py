"""Pooling and its gradient, with overlapping windows and with ties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.errors import PocketuneError

from ..lowering import ALWAYS_ROWS, check_function, leaf, lower_function


def max_pool_step(kernel: int, stride: int, padding: int):
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = F.max_pool2d(x, kernel, stride, padding)
        return [y, *torch.autograd.grad(y, [x], g)]

    return step


def check_max_pool(x: Tensor, kernel: int, stride: int, padding: int) -> None:
    shape = F.max_pool2d(x, kernel, stride, padding).shape
    g = leaf(*shape, seed=1, grad=False)
    check_function(max_pool_step(kernel, stride, padding), [x, g])


@settings(max_examples=25)
@given(
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    batch=st.integers(1, 3),
    kernel=st.sampled_from([2, 3]),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
)
def test_max_pool(
    size: tuple[int, int], batch: int, kernel: int, stride: int, padding: int
) -> None:
    check_max_pool(leaf(batch, 3, *size), kernel, stride, padding)


def test_max_pool_gives_the_gradient_of_a_tie_to_the_same_element() -> None:
    """After a ReLU most windows are ties of zeros."""
    values = torch.randint(0, 2, (2, 3, 7, 7), generator=torch.Generator().manual_seed(0))
    check_max_pool(values.float().requires_grad_(), 3, 2, 1)
    check_max_pool(torch.zeros(1, 2, 6, 6, requires_grad=True), 3, 1, 1)


def test_an_element_that_is_the_maximum_of_several_windows() -> None:
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 2, 2] = 1
    check_max_pool(x.requires_grad_(), 3, 1, 0)


@pytest.mark.parametrize("kernel", [2, (3, 2)])
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_average_pool(kernel: int | tuple[int, int], count_include_pad: bool) -> None:
    def forward(x: Tensor) -> list[Tensor]:
        return [F.avg_pool2d(x, kernel, 2, 1, count_include_pad=count_include_pad)]

    check_function(forward, [leaf(2, 3, 7, 8)])


def test_average_pool_without_a_stride() -> None:
    check_function(lambda x: [F.avg_pool2d(x, 3)], [leaf(2, 3, 9, 7)])


def test_average_pool_with_a_divisor_is_refused() -> None:
    with pytest.raises(PocketuneError, match="divisor"):
        lower_function(lambda x: [F.avg_pool2d(x, 2, divisor_override=3)], [leaf(1, 2, 4, 4)])


@pytest.mark.parametrize("rows_max_pixels", [0, ALWAYS_ROWS])
@pytest.mark.parametrize("keepdim", [True, False])
def test_global_average_pool(rows_max_pixels: int, keepdim: bool) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w).mean((2, 3), keepdim=keepdim)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    shape = (2, 5, 1, 1) if keepdim else (2, 5)
    inputs = [leaf(2, 3, 4, 5), leaf(5, 3, 1, 1, seed=1), leaf(*shape, seed=2, grad=False)]
    check_function(step, inputs, (), rows_max_pixels)
