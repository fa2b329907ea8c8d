"""Arithmetic on maps in rows, with operands of every rank."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ..lowering import LAYOUTS, check_function, leaf

SHAPES = [(1,), (1, 1), (1, 1, 1), (1, 1, 1, 1), (3, 1, 1), (1, 3, 1, 1), (2, 1, 1, 1)]


@LAYOUTS
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_between_two_convolutions(
    shape: tuple[int, ...], trained: bool, rows_max_pixels: int
) -> None:
    """A matrix product, as which the second one is computed, takes two dimensions only."""
    a, b, scale = leaf(3, 3, 1, 1, seed=1), leaf(2, 3, 1, 1, seed=2), leaf(*shape, seed=3)

    def step(x: Tensor, a: Tensor, b: Tensor, scale: Tensor) -> list[Tensor]:
        return [F.conv2d(F.conv2d(x, a) * scale, b)]

    given = [leaf(2, 3, 4, 3), a, b]
    inputs, constants = ([*given, scale], []) if trained else (given, [scale])
    check_function(step, inputs, constants, rows_max_pixels)


@LAYOUTS
def test_of_two_vectors_that_rows_have_read(rows_max_pixels: int) -> None:
    def step(x: Tensor, a: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
        v, w = v.view(1, 3, 1, 1), w.view(1, 3, 1, 1)
        return [F.conv2d(x, a) * v * w, v * w]

    inputs = [leaf(2, 3, 4, 3), leaf(3, 3, 1, 1, seed=1), leaf(3, seed=2), leaf(3, seed=3)]
    check_function(step, inputs, (), rows_max_pixels)


@LAYOUTS
def test_integers_beside_a_map(rows_max_pixels: int) -> None:
    places = torch.arange(3).view(1, 3, 1, 1)

    def step(x: Tensor, a: Tensor, places: Tensor) -> list[Tensor]:
        y = F.conv2d(x, a)
        return [y * places, places - y, torch.where(y > places, y, places)]

    inputs = [leaf(2, 3, 4, 3), leaf(3, 3, 1, 1, seed=1)]
    check_function(step, inputs, [places], rows_max_pixels)
