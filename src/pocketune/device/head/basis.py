"""The principal axes of rows that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pocketune.device.head.sums import Exact

Rows = Callable[[], Iterator[Exact]]

_MATRIX = 5.2
"""Matrices in memory while numpy decomposes one: it, a copy, the result, and the workspace of two
that LAPACK's syevd takes. Measured, with numpy 2.3."""


class Basis(NamedTuple):
    """Axes (D, M) of the rows, orthonormal, and the sum of squares (M,) along each.

    Rows have nothing outside of the axes.
    """

    axes: Exact
    squares: Exact


def decompose(rows: Rows, size: int) -> Basis:
    """The basis of rows of `size` values, from their Gram matrix."""
    return _significant(*np.linalg.eigh(_gram(rows, size)))


def decomposition_bytes(size: int) -> int:
    """Bytes that `decompose` takes at its peak, with its result."""
    return round(8 * _MATRIX * size * size)


def _gram(rows: Rows, size: int) -> Exact:
    gram = np.zeros((size, size))
    for block in rows():
        gram += block.T @ block
    return gram


def _significant(squares: Exact, axes: Exact) -> Basis:
    """The axes along which there is more than rounding; none for equal rows."""
    if not len(squares):
        return Basis(axes, squares)
    least = squares[-1] * len(squares) * np.finfo(np.float64).eps
    kept = squares > max(least, 0.0)
    return Basis(axes[:, kept], squares[kept])
