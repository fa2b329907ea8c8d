"""Arithmetic on maps in rows, with operands of every rank."""

from collections.abc import Callable

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


@LAYOUTS
@pytest.mark.parametrize(
    "number",
    [
        lambda i: i + 1,
        lambda i: torch.add(i, i, alpha=2),
        lambda i: i * 2,
        lambda i: 9 - i,
        lambda i: torch.rsub(i, i, alpha=3),
        lambda i: i.clamp(max=1),
        lambda i: i.clamp(min=1),
        lambda i: i.clamp(1, 2),
        lambda i: i * (i > 1),
        lambda i: i / 2,
        lambda i: i + 0.5,
        lambda i: (i > 1).sum(1) + 1,
        lambda i: (i > 1).sum((0, 2, 3)) + 1,
        lambda i: (i > 1).cumsum(1) + 1,
        lambda i: i.sqrt(),
        lambda i: torch.cat([i, i > 1, i + 0.5], 1),
        lambda i: i > 1.5,
        lambda i: i == 2,
        lambda i: i != 2,
        lambda i: i != i.flip(1),
        lambda i: (i > 1) == 1,
        lambda i: (i > 1) != (i > 2),
    ],
)
def test_integers_beside_numbers(number: Callable[[Tensor], Tensor], rows_max_pixels: int) -> None:
    def step(x: Tensor, a: Tensor) -> list[Tensor]:
        y = F.conv2d(x, a)
        return [number(y.topk(3, 1)[1]) + 0.0 * y[:, :1].sum()]

    check_function(step, [leaf(2, 3, 4, 3), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)


@LAYOUTS
def test_a_map_beside_its_mask(rows_max_pixels: int) -> None:
    def step(x: Tensor, a: Tensor) -> list[Tensor]:
        y = F.conv2d(x, a)
        return [torch.cat([y, y > 0], 1), (y > 0).sum((0, 2, 3)) * 1.0]

    check_function(step, [leaf(2, 3, 4, 3), leaf(4, 3, 1, 1, seed=1)], (), rows_max_pixels)
