"""The principal axes of rows that are read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketune.device.head.sums import Exact

Rows = Callable[[], Iterator[Exact]]

_EXACT = 640
"""Up to this size, a decomposition is computed in float64; its memory is 16 MB."""
_COPIES = 5
"""Matrices that numpy holds while it decomposes one: the matrix and a copy, the result, and two as
workspace of LAPACK's syevd."""


class Basis(NamedTuple):
    """Axes (D, M) of the rows, orthonormal, and the sum of squares (M,) along each.

    Rows have nothing outside of the axes.
    """

    axes: NDArray[Any]
    squares: Exact

    def along(self, rows: Exact) -> Exact:
        """Coordinates (N, M) of rows (N, D) along the axes."""
        found: Exact = (rows.astype(self.axes.dtype) @ self.axes).astype(np.float64)
        return found

    def back(self, coordinates: Exact) -> Exact:
        """Rows (N, D) of these coordinates (N, M)."""
        found: Exact = (coordinates.astype(self.axes.dtype) @ self.axes.T).astype(np.float64)
        return found


def decompose(rows: Rows, count: int, size: int) -> Basis:
    """The basis of ``count`` rows of ``size`` values.

    Where there are fewer rows than values, the rows' products with each other are decomposed, and
    otherwise the values' products, their Gram matrix. Both have the same eigenvalues.
    """
    kind = np.float64 if min(count, size) <= _EXACT else np.float32
    if count > size:
        return _significant(*np.linalg.eigh(_gram(rows, size, kind)))
    every = np.concatenate([block.astype(kind) for block in rows()])
    basis = _significant(*np.linalg.eigh(every @ every.T))
    return Basis(every.T @ (basis.axes / np.sqrt(basis.squares).astype(kind)), basis.squares)


def decomposition_bytes(count: int, size: int) -> int:
    """Bytes that :func:`decompose` takes at its peak, with its result and its copy of the rows."""
    side = min(count, size)
    item = 8 if side <= _EXACT else 4
    copies = item * _COPIES * side * side
    return copies + (0 if count > size else 3 * item * count * size)


def _gram(rows: Rows, size: int, kind: type[np.floating[Any]]) -> NDArray[Any]:
    """Products in the given precision, their sum in float64."""
    gram = np.zeros((size, size))
    for block in rows():
        given = block.astype(kind)
        gram += given.T @ given
    return gram.astype(kind)


def _significant(squares: NDArray[Any], axes: NDArray[Any]) -> Basis:
    """Without axes along which there is nothing but rounding."""
    least = squares[-1] * len(squares) * np.finfo(squares.dtype).eps
    kept = squares > max(least, 0.0)
    return Basis(axes[:, kept], squares[kept].astype(np.float64))
