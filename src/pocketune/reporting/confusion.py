"""Confusion matrices that fit on a page, and the pairs of classes that are confused most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Matrix(NamedTuple):
    """Numbers of photos by class (row) and predicted class (column), int64."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]


class Pair(NamedTuple):
    """Photos of a class that were taken for another."""

    truth: str
    guess: str
    photos: int


def most_confused(names: Sequence[str], counts: NDArray[np.int64], limit: int) -> Matrix:
    """The matrix of at most ``limit`` classes, in their order.

    If there are more classes, those with fewest wrong predictions, from and to them, become one
    last class.
    """
    if len(names) <= limit:
        return Matrix(tuple(names), counts)
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    kept = np.sort(np.argsort(-wrong, kind="stable")[: limit - 1])
    group = np.full(len(names), limit - 1)
    group[kept] = np.arange(limit - 1)
    grouped = np.zeros((limit, limit), np.int64)
    np.add.at(grouped, (group[:, None], group[None, :]), counts)
    return Matrix((*(names[i] for i in kept), f"{len(names) - limit + 1} others"), grouped)


def confused_pairs(names: Sequence[str], counts: NDArray[np.int64], limit: int) -> tuple[Pair, ...]:
    """The most frequent mistakes, most frequent first."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
    rows, columns = np.unravel_index(order, wrong.shape)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return tuple(Pair(names[r], names[c], int(wrong[r, c])) for r, c in pairs if wrong[r, c])
