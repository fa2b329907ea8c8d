"""Pooling, resizing and padding by pixels, with their gradients."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.capture.operators import PlainOperators
from pocketune.errors import PocketuneError

from ..lowering import ALWAYS_ROWS, LAYOUTS, NEVER_ROWS, check_function, leaf, lower_function


def check_map(function, x: Tensor, rows_max_pixels: int) -> None:
    """Value and gradient, behind a 1x1 convolution that leaves rows where they are wanted."""
    kernel = leaf(x.shape[1], x.shape[1], 1, 1, seed=1)
    g = leaf(*function(x).shape, seed=2, grad=False)

    def step(x: Tensor, kernel: Tensor, g: Tensor) -> list[Tensor]:
        y = function(F.conv2d(x, kernel))
        return [y, *torch.autograd.grad(y, [x, kernel], g)]

    check_function(step, [x, kernel, g], (), rows_max_pixels)


@settings(max_examples=40)
@given(
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    padding=st.sampled_from([0, 1]),
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
    rows=st.sampled_from([NEVER_ROWS, ALWAYS_ROWS]),
)
def test_average_pool(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    ceil_mode: bool,
    count_include_pad: bool,
    rows: int,
) -> None:
    if min(kernel) == 1:
        padding = 0

    def pool(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, kernel, stride, padding, ceil_mode, count_include_pad)

    check_map(pool, leaf(2, 3, *size), rows)


def test_average_pool_without_a_stride() -> None:
    check_map(lambda x: F.avg_pool2d(x, 3), leaf(2, 3, 9, 7), NEVER_ROWS)


@settings(max_examples=25)
@given(
    old=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    new=st.sampled_from([1, 2, 3, 6, (2, 5)]),
    rows=st.sampled_from([NEVER_ROWS, ALWAYS_ROWS]),
)
def test_adaptive_average_pool(old: tuple[int, int], new: int | tuple[int, int], rows: int) -> None:
    """Windows are uneven and overlap where a side is not a multiple of the pooled one."""

    def pool(x: Tensor) -> Tensor:
        with PlainOperators():
            return F.adaptive_avg_pool2d(x, new)

    check_map(pool, leaf(2, 3, *old), rows)


@LAYOUTS
def test_a_pyramid_of_pooled_maps_joins_its_input(rows_max_pixels: int) -> None:
    """Pool, 1x1 convolution, resize and concatenation, as in PSPNet and ASPP."""

    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        with PlainOperators():
            pooled = [F.conv2d(F.adaptive_avg_pool2d(x, n), w) for n in (1, 2, 3, 6)]
            wide = [
                F.interpolate(p, x.shape[2:], mode="bilinear", align_corners=False) for p in pooled
            ]
            y = torch.cat([x, *wide], 1)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w, g = leaf(2, 3, 8, 7), leaf(4, 3, 1, 1, seed=1), leaf(2, 19, 8, 7, seed=2, grad=False)
    check_function(step, [x, w, g], (), rows_max_pixels)


@settings(max_examples=30)
@given(
    old=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    new=st.tuples(st.integers(1, 14), st.integers(1, 14)),
    mode=st.sampled_from(["bilinear", "bicubic", "nearest", "nearest-exact"]),
    align_corners=st.booleans(),
    rows=st.sampled_from([NEVER_ROWS, ALWAYS_ROWS]),
)
def test_resizing(
    old: tuple[int, int],
    new: tuple[int, int],
    mode: str,
    align_corners: bool,
    rows: int,
) -> None:
    def resize(x: Tensor) -> Tensor:
        return F.interpolate(x, new, None, mode, None if "nearest" in mode else align_corners)

    check_map(resize, leaf(2, 3, *old), rows)


@pytest.mark.parametrize("scale", [2, (1.5, 2.25), (2.2, 2.1)])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "nearest-exact"])
@pytest.mark.parametrize("rows", [NEVER_ROWS, ALWAYS_ROWS])
def test_resizing_by_a_factor(scale: float, mode: str, rows: int) -> None:
    """Of (2.2, 2.1), the sides are doubled and the pixels' places are not."""
    check_map(lambda x: F.interpolate(x, scale_factor=scale, mode=mode), leaf(2, 3, 4, 6), rows)


@LAYOUTS
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 4), (9, 4), (5, 8)])
def test_antialiased_resizing(
    size: tuple[int, int], mode: str, align_corners: bool, rows_max_pixels: int
) -> None:
    def resize(x: Tensor) -> Tensor:
        return F.interpolate(x, size, None, mode, align_corners, antialias=True)

    check_map(resize, leaf(2, 3, 7, 6), rows_max_pixels)


@pytest.mark.parametrize("target", [{"size": 7}, {"size": [3]}, {"scale_factor": 1.5}])
@pytest.mark.parametrize("mode", ["linear", "nearest", "nearest-exact"])
def test_resizing_tokens(mode: str, target: dict[str, Any]) -> None:
    def step(x: Tensor) -> list[Tensor]:
        with PlainOperators():
            y = F.interpolate(x, mode=mode, **target).square()
        return [y, *torch.autograd.grad(y.sum(), [x])]

    check_function(step, [leaf(2, 3, 5)])


@LAYOUTS
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 1, 1, 1), (2, 0, 1, 3), (0, 1, 2, 2), (0, 0, 0, 0)])
def test_padding_by_its_pixels(mode: str, pad: tuple[int, ...], rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        with PlainOperators():
            y = F.pad(F.conv2d(x, w), pad, mode=mode) * 1.0
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 3, 4, 5), leaf(4, 3, 1, 1, seed=1)
    g = leaf(2, 4, 4 + sum(pad[2:]), 5 + sum(pad[:2]), seed=2, grad=False)
    check_function(step, [x, w, g], (), rows_max_pixels)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_in_plain_operators_changes_no_value(mode: str) -> None:
    x = leaf(2, 3, 4, 5)
    expected = F.pad(x, (1, 2, 3, 0), mode=mode)
    with PlainOperators():
        found = F.pad(x, (1, 2, 3, 0), mode=mode)
    torch.testing.assert_close(found, expected)


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


@pytest.mark.parametrize("padding", [0, 1])
def test_max_pool_of_one_window(padding: int) -> None:
    check_max_pool(leaf(2, 3, 4, 4), 4 + 2 * padding, 4, padding)
    check_max_pool(torch.zeros(2, 3, 4, 4, requires_grad=True), 4 + 2 * padding, 4, padding)


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
def test_average_pool_of_an_input(kernel: int | tuple[int, int], count_include_pad: bool) -> None:
    def forward(x: Tensor) -> list[Tensor]:
        return [F.avg_pool2d(x, kernel, 2, 1, count_include_pad=count_include_pad)]

    check_function(forward, [leaf(2, 3, 7, 8)])


def test_average_pool_of_an_input_without_a_stride() -> None:
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
