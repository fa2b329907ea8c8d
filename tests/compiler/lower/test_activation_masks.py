"""Masks of one bit an element, kept as bits and as bytes, exactly on their kinks."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.layers import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)

from ..lowering import FORMS, LAYOUTS, check_function, leaf, lower_function, operators, run_model

LAYERS = (SignedReLU, SignedReLU6, SignedHardswish, MaskedReLU, MaskedReLU6)
EACH = pytest.mark.parametrize("layer", LAYERS)
TIES = [-6.0, -3.0, -0.0, 0.0, 3.0, 6.0, 6.5, -1e-6, 1e-6, 5.9999995]


def step_of(layer: type[nn.Module]):
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = layer()(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    return step


@EACH
@FORMS
@pytest.mark.parametrize("shape", [(2, 8, 3, 4), (3, 5, 7, 3), (4, 6), (1, 1)])
def test_value_and_derivative(layer, least_packed, shape) -> None:
    """Also where the last byte is not full."""
    x = (leaf(*shape).detach() * 5).requires_grad_()
    g = leaf(*shape, seed=1, grad=False)
    check_function(step_of(layer), [x, g], least_packed=least_packed)


@EACH
@FORMS
def test_on_its_kinks_it_is_pytorchs(layer, least_packed) -> None:
    x = torch.tensor(TIES).view(1, 2, 1, 5).requires_grad_()
    g = torch.full_like(x, 2.0, requires_grad=False)
    ours = run_model(lower_function(step_of(layer), [x, g], least_packed=least_packed), [x, g])
    for found, expected in zip(ours, step_of(layer)(x, g), strict=True):
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-6, atol=1e-6)


@EACH
@FORMS
@LAYOUTS
def test_between_two_convolutions(layer, least_packed, rows_max_pixels) -> None:
    """Here a map may be in rows, forward and backward, and the gradient in the other layout."""

    def step(x: Tensor, a: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(layer()(F.conv2d(x, a) * 3), b, padding=1, groups=4)
        return [y, *torch.autograd.grad(y, [x, a, b], g)]

    a, b = leaf(4, 3, 1, 1, seed=1), leaf(4, 1, 3, 3, seed=2)
    g = leaf(2, 4, 4, 3, seed=3, grad=False)
    check_function(
        step, [leaf(2, 3, 4, 3), a, b, g], (), rows_max_pixels, least_packed=least_packed
    )


@FORMS
def test_channels_last_input(least_packed) -> None:
    """The order of PyTorch's bits is no matter to the graph."""
    x = leaf(2, 5, 3, 4).detach().to(memory_format=torch.channels_last).requires_grad_()
    g = leaf(2, 5, 3, 4, seed=1, grad=False)
    check_function(step_of(SignedReLU6), [x, g], least_packed=least_packed)


def test_bits_are_packed_by_integer_products() -> None:
    x, g = leaf(2, 8, 3, 4), leaf(2, 8, 3, 4, seed=1, grad=False)
    step = step_of(SignedReLU)
    assert "MatMulInteger" in operators(lower_function(step, [x, g], least_packed=0))
    assert "MatMulInteger" not in operators(lower_function(step, [x, g]))
