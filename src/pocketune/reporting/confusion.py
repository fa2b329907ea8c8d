"""Confusion matrices that fit on a page, and the pairs of classes that are confused most."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pocketune.tasks.results import Confusions


class Matrix(NamedTuple):
    """Numbers of photos by class (row) and predicted class (column), int64."""

    names: tuple[str, ...]
    counts: NDArray[np.int64]


class Pair(NamedTuple):
    """Photos of a class that were taken for another."""

    truth: str
    guess: str
    photos: int


def most_confused(found: Confusions, limit: int) -> Matrix:
    """The matrix of at most `limit` classes, in their order.

    If there are more classes, those with fewest wrong predictions, from and to them, become one
    last class.
    """
    names, (truth, guess, photos) = tuple(found.classes), found.pairs.T
    group, size = np.arange(len(names)), len(names)
    if size > limit:
        wrong = np.zeros(size, np.int64)
        for ends in (truth, guess):
            np.add.at(wrong, ends, np.where(truth == guess, 0, photos))
        kept = np.sort(np.argsort(-wrong, kind="stable")[: limit - 1])
        group, size = np.full(size, limit - 1), limit
        group[kept] = np.arange(limit - 1)
        names = (*(names[i] for i in kept), f"{len(names) - limit + 1} others")
    counts = np.zeros((size, size), np.int64)
    np.add.at(counts, (group[truth], group[guess]), photos)
    return Matrix(names, counts)


def confused_pairs(found: Confusions, limit: int) -> tuple[Pair, ...]:
    """The most frequent mistakes, most frequent first."""
    wrong = found.pairs[found.pairs[:, 0] != found.pairs[:, 1]]
    order = np.argsort(-wrong[:, 2], kind="stable")[:limit]
    names = found.classes
    return tuple(Pair(names[t], names[g], photos) for t, g, photos in wrong[order].tolist())
