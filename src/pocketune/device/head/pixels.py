"""A classifier of pixels in closed form: ridge regression on the cells of feature maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.arrays import distinct
from pocketune.tasks.maps import IGNORED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.device.head.sums import Exact
    from pocketune.tasks.maps import Truth

BLOCK = 1024
"""Cells that are in memory as exact values at once."""


class PixelRidge:
    """Least squares from features to classes, over all cells of feature maps.

    Only sums are kept: C x C values for maps of C channels.

    Args:
        channels: C.
        weights: The weight (classes,) of a cell of each class. Where they are equal, classes of few
            pixels are never predicted.
    """

    def __init__(self, channels: int, weights: Exact) -> None:
        self._weights = weights
        self._totals = np.zeros(len(weights))
        self._sums = np.zeros((len(weights), channels))
        self._squares = np.zeros((channels, channels))

    def add(self, rows: FloatArray, classes: NDArray[np.uint8]) -> None:
        """Add cells (N, C), each with its class (N,)."""
        for start in range(0, len(rows), BLOCK):
            exact = rows[start : start + BLOCK].astype(np.float64)
            numbers = classes[start : start + BLOCK]
            weighed = exact * self._weights[numbers, None]
            for number in distinct(numbers).tolist():
                own = numbers == number
                self._totals[number] += self._weights[number] * np.count_nonzero(own)
                self._sums[number] += weighed[own].sum(axis=0)
            self._squares += exact.T @ weighed

    def join(self, other: PixelRidge) -> None:
        """Add the cells of another fit with the same weights."""
        self._totals += other._totals
        self._sums += other._sums
        self._squares += other._squares

    def layer(self, strength: float) -> tuple[Exact, Exact]:
        """Weight (classes, C) and bias (classes,) of a 1x1 convolution.

        Args:
            strength: The penalty, relative to the mean variance of a feature.

        Raises:
            ValueError: No cell counts.
        """
        total = float(self._totals.sum())
        if not total:
            raise ValueError("no pixel of the masks counts")
        shares, mean = self._totals / total, self._sums.sum(axis=0) / total
        spread = self._squares / total - np.outer(mean, mean)
        spread[np.diag_indices_from(spread)] += strength * np.trace(spread) / len(mean) + 1e-12
        together = self._sums / total - np.outer(shares, mean)
        weight: Exact = np.linalg.solve(spread, together.T).T
        return weight, shares - weight @ mean


def known_cells(maps: FloatArray, label: Truth) -> tuple[FloatArray, NDArray[np.uint8]]:
    """The cells (N, C) of feature maps (C, h, w) that count, and the class (N,) of each."""
    classes = cell_classes(label, *maps.shape[1:]).reshape(-1)
    known = classes != IGNORED
    return maps.reshape(len(maps), -1).T[known], classes[known]


def cell_classes(label: Truth, height: int, width: int) -> NDArray[np.uint8]:
    """The class (height, width) at the center of each cell of a map; 255 beyond the image."""
    mask, box = label.mask(), label.box
    rows = np.floor(box.top + (np.arange(height) + 0.5) * box.height / height).astype(np.intp)
    columns = np.floor(box.left + (np.arange(width) + 0.5) * box.width / width).astype(np.intp)
    found = np.full((height, width), IGNORED, np.uint8)
    down = (rows >= 0) & (rows < mask.shape[0])
    across = (columns >= 0) & (columns < mask.shape[1])
    found[np.ix_(down, across)] = mask[np.ix_(rows[down], columns[across])]
    return found
