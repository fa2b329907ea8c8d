"""A convolution takes up the padding before it and the frozen norm after it."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.passes.fold import fold_padding
from pocketune.layers import FrozenBatchNorm2d

from ..lowering import LAYOUTS, check_function, leaf, operators
from .programs import program_of

SHAPES = pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 1), (3, 4)])


def norm_constants(channels: int) -> list[Tensor]:
    """Scale and shift of a norm, as its forward makes them."""
    norm = FrozenBatchNorm2d(channels)
    scale = leaf(channels, seed=7, grad=False).view(1, -1, 1, 1) + norm.eps
    return [scale, leaf(channels, seed=8, grad=False).view(1, -1, 1, 1)]


@LAYOUTS
@SHAPES
def test_frozen_norm_behind_a_frozen_convolution(
    kernel: int, groups: int, rows_max_pixels: int
) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, padding=kernel // 2, groups=groups) * scale + shift
        return [y, *torch.autograd.grad(y, [x], g)]

    w = leaf(4, 4 // groups, kernel, kernel, seed=1, grad=False)
    inputs = [leaf(2, 4, 5, 6), leaf(2, 4, 5, 6, seed=2, grad=False)]
    model = check_function(step, inputs, [w, *norm_constants(4)], rows_max_pixels)
    assert not {"Mul", "Add"} & set(operators(model))
    convolutions = [op for op in operators(model) if op in ("Conv", "Gemm", "ConvTranspose")]
    assert len(convolutions) == 2  # the one without the norm is dead


@LAYOUTS
@SHAPES
def test_a_bias_before_the_norm(kernel: int, groups: int, rows_max_pixels: int) -> None:
    def forward(x: Tensor, w: Tensor, b: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        return [F.conv2d(x, w, b, padding=kernel // 2, groups=groups) * scale + shift]

    w, b = leaf(4, 4 // groups, kernel, kernel, seed=1, grad=False), leaf(4, seed=3, grad=False)
    model = check_function(forward, [leaf(2, 4, 5, 6)], [w, b, *norm_constants(4)], rows_max_pixels)
    assert not {"Mul", "Add"} & set(operators(model))


@LAYOUTS
@SHAPES
def test_a_trained_shift_becomes_the_bias(kernel: int, groups: int, rows_max_pixels: int) -> None:
    def step(x: Tensor, shift: Tensor, g: Tensor, w: Tensor, scale: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, padding=kernel // 2, groups=groups) * scale + shift.view(1, -1, 1, 1)
        return [y, *torch.autograd.grad(y, [x, shift], g)]

    w, scale = leaf(4, 4 // groups, kernel, kernel, seed=1, grad=False), norm_constants(4)[0]
    inputs = [leaf(2, 4, 5, 6), leaf(4, seed=3), leaf(2, 4, 5, 6, seed=2, grad=False)]
    model = check_function(step, inputs, [w, scale], rows_max_pixels)
    assert not {"Mul", "Add"} & set(operators(model))


@LAYOUTS
def test_a_trained_convolution_keeps_its_scale(rows_max_pixels: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w) * scale + shift
        return [y, *torch.autograd.grad(y, [x, w], g)]

    g = leaf(2, 4, 5, 6, seed=2, grad=False)
    inputs = [leaf(2, 4, 5, 6), leaf(4, 4, 1, 1, seed=1), g]
    check_function(step, inputs, norm_constants(4), rows_max_pixels)


@LAYOUTS
@pytest.mark.parametrize("shape", [(), (1, 1, 5, 6), (2, 4, 5, 6), (2, 1, 1, 1)])
def test_other_factors_are_not_taken_for_a_scale(
    shape: tuple[int, ...], rows_max_pixels: int
) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor, factor: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w) * factor + factor
        return [y, *torch.autograd.grad(y, [x], g)]

    constants = [leaf(4, 4, 1, 1, seed=1, grad=False), leaf(*shape, seed=3, grad=False)]
    inputs = [leaf(2, 4, 5, 6), leaf(2, 4, 5, 6, seed=2, grad=False)]
    check_function(step, inputs, constants, rows_max_pixels)


@LAYOUTS
def test_the_convolution_that_others_read_stays(rows_max_pixels: int) -> None:
    def step(x: Tensor, g: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        raw = F.conv2d(x, w)
        y = raw * scale + shift + raw
        return [y, raw, *torch.autograd.grad(y, [x], g)]

    w = leaf(4, 4, 1, 1, seed=1, grad=False)
    inputs = [leaf(2, 4, 5, 6), leaf(2, 4, 5, 6, seed=2, grad=False)]
    check_function(step, inputs, [w, *norm_constants(4)], rows_max_pixels)


@LAYOUTS
def test_one_image_of_one_pixel_is_no_vector(rows_max_pixels: int) -> None:
    """(1, C, 1, 1) is then the shape of every map as well."""

    def step(x: Tensor, g: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w) * scale + shift
        y = y * torch.sigmoid(y) + x
        return [y, *torch.autograd.grad(y, [x], g)]

    w = leaf(4, 4, 1, 1, seed=1, grad=False)
    inputs = [leaf(1, 4, 1, 1), leaf(1, 4, 1, 1, seed=2, grad=False)]
    check_function(step, inputs, [w, *norm_constants(4)], rows_max_pixels)


def padded(pads: Sequence[int], value: float = 0.0, kernel: int = 3) -> list[tuple[int, ...]]:
    """The pads of the convolutions that were folded."""

    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        return [F.conv2d(F.pad(x, list(pads), value=value), w, padding=(1, 2))]

    program = program_of(forward, [leaf(2, 3, 5, 6), leaf(4, 3, kernel, kernel)])
    fold_padding(program)
    return [node.meta["pads"] for node in program.needed() if "pads" in node.meta]


def test_zeros_on_any_side_are_added_to_its_own() -> None:
    assert padded([1, 2, 3, 4]) == [(3 + 1, 1 + 2, 4 + 1, 2 + 2)]
    assert padded([1, 2]) == [(1, 1 + 2, 1, 2 + 2)]


@pytest.mark.parametrize(
    ("pads", "value", "kernel"),
    [
        ([1, 1, 1, 1], 0.5, 3),
        ([-1, 1, 1, 1], 0.0, 3),
        ([0, 0, 0, 0, 1, -1], 0.0, 3),
        ([1, 1, 1, 1], 0.0, 1),
    ],
)
def test_other_pads_stay(pads: list[int], value: float, kernel: int) -> None:
    def forward(x: Tensor, w: Tensor) -> list[Tensor]:
        return [F.conv2d(F.pad(x, pads, value=value), w)]

    program = program_of(forward, [leaf(2, 3, 6, 6), leaf(4, 3, kernel, kernel)])
    fold_padding(program)
    assert not any("pads" in node.meta for node in program.needed())


@pytest.mark.parametrize("stride", [1, 2])
def test_the_result_is_the_same(stride: int) -> None:
    def step(x: Tensor, w: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(F.pad(x, (0, 1, 2, 1)), w, stride=stride, padding=1)
        return [y, *torch.autograd.grad(y, [x, w], g)]

    x, w = leaf(2, 4, 6, 5), leaf(4, 4, 3, 3, seed=1)
    g = torch.randn_like(F.conv2d(F.pad(x, (0, 1, 2, 1)), w, stride=stride, padding=1)).detach()
    check_function(step, [x, w, g])
    forward = check_function(lambda x, w: [F.conv2d(F.pad(x, (0, 1, 0, 1)), w)], [x, w])
    assert operators(forward) == ["Conv"]
