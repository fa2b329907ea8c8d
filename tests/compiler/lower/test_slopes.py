"""Derivatives of a few bits in a graph, packed and as bytes, in both layouts."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.layers.few_bit import few_bit
from pocketune.layers.slopes import BITS

from ..lowering import FORMS, LAYOUTS, check_function, leaf, lower_function, operators, run_model

EACH = pytest.mark.parametrize("exact", [nn.GELU(), nn.SiLU(), nn.Hardswish()], ids=str)
WITH_BITS = pytest.mark.parametrize("bits", BITS)


def step_of(exact: nn.Module, bits: int):
    def step(x: Tensor, g: Tensor) -> list[Tensor]:
        y = few_bit(exact, bits)(x)
        return [y, *torch.autograd.grad(y, [x], g)]

    return step


@EACH
@WITH_BITS
@FORMS
@pytest.mark.parametrize("shape", [(2, 8, 3, 4), (3, 5, 7, 3), (4, 6), (1, 1)])
def test_value_and_derivative(exact, bits, least_packed, shape) -> None:
    """Also where the last byte is not full."""
    x = (leaf(*shape).detach() * 5).requires_grad_()
    g = leaf(*shape, seed=1, grad=False)
    check_function(step_of(exact, bits), [x, g], least_packed=least_packed)


@WITH_BITS
def test_on_the_borders_of_cells_it_is_pytorchs(bits) -> None:
    """Halves are rounded to the even cell in both, and large inputs are in the outer cells."""
    x = torch.cat([(torch.arange(-300, 300) + 0.5) / 32, torch.tensor([-1e9, 1e9])])
    x = x.view(2, -1).requires_grad_()
    g = torch.full_like(x, 2.0, requires_grad=False)
    ours = run_model(lower_function(step_of(nn.GELU(), bits), [x, g]), [x, g])
    expected = step_of(nn.GELU(), bits)(x, g)[1]
    torch.testing.assert_close(torch.from_numpy(ours[1]), expected, rtol=1e-6, atol=1e-6)


@WITH_BITS
@FORMS
@LAYOUTS
def test_between_two_convolutions(bits, least_packed, rows_max_pixels) -> None:
    """Here a map may be in rows, forward and backward, and the gradient in the other layout."""
    layer = few_bit(nn.SiLU(), bits)

    def step(x: Tensor, a: Tensor, b: Tensor, g: Tensor) -> list[Tensor]:
        y = F.conv2d(layer(F.conv2d(x, a)), b, padding=1, groups=4)
        return [y, *torch.autograd.grad(y, [x, a, b], g)]

    # multiples of 1/4: inputs of the activation are exact, so that none crosses a border
    x, a = (
        (leaf(*shape, seed=seed).detach() * 4).round().div(4).requires_grad_()
        for seed, shape in enumerate([(2, 3, 4, 3), (4, 3, 1, 1)])
    )
    b, g = leaf(4, 1, 3, 3, seed=2), leaf(2, 4, 4, 3, seed=3, grad=False)
    check_function(step, [x, a, b, g], (), rows_max_pixels, least_packed=least_packed)


def test_eight_bits_are_kept_as_they_are() -> None:
    x, g = leaf(2, 8, 3, 4), leaf(2, 8, 3, 4, seed=1, grad=False)
    for bits, packs in ((4, True), (8, False)):
        found = operators(lower_function(step_of(nn.GELU(), bits), [x, g], least_packed=0))
        assert ("MatMulInteger" in found) is packs
