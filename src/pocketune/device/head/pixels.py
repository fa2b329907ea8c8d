"""A classifier of pixels in closed form: ridge regression on the cells of feature maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.arrays import distinct
from pocketune.data import sample
from pocketune.errors import PocketuneError
from pocketune.tasks.maps import IGNORED
from pocketune.tasks.segmentation import balanced_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.data import ImageDataset
    from pocketune.device.head.sums import Exact
    from pocketune.tasks import Score
    from pocketune.tasks.maps import Truth

STRENGTH = 1e-3
"""Penalty relative to the mean variance of a feature; cells are many, so that it matters little."""
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

    def add(self, maps: FloatArray, labels: Iterable[Truth]) -> None:
        """Add feature maps (N, C, h, w) and the masks of what they show."""
        for each, label in zip(maps, labels, strict=True):
            self.add_cells(*known_cells(each, label))

    def add_cells(self, rows: FloatArray, classes: NDArray[np.uint8]) -> None:
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

    def layer(self, strength: float = STRENGTH) -> tuple[Exact, Exact]:
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


def score_pixels(
    maps: Callable[[NDArray[np.uint8]], FloatArray], photos: ImageDataset, size: int, count: int
) -> tuple[Score, int]:
    """Fit on one half of some photos, and score on the other half.

    Args:
        maps: Feature maps (N, C, h, w) of images.
        photos: Photos with masks.
        size: Height and width of the images, in pixels.
        count: About so many photos are taken, evenly spread.

    Returns:
        The score, and of how many photos it is.

    Raises:
        PocketuneError: The photos allow no such score.
    """
    chosen = photos.thinned(count)
    first, second = (chosen.subset(range(start, len(chosen), 2)) for start in (0, 1))
    weight, bias = _fitted(maps, first, size, photos)
    metric = photos.labeled.metric()
    for batch in sample(second, size=size, count=len(chosen)):
        found = np.einsum("kc,nchw->nkhw", weight, maps(batch.images)) + bias[:, None, None]
        metric.update(found.astype(np.float32), batch.labels)
    if not metric.images:
        raise _too_few()
    return metric.score, metric.images


def _fitted(
    maps: Callable[[NDArray[np.uint8]], FloatArray],
    chosen: ImageDataset,
    size: int,
    photos: ImageDataset,
) -> tuple[Exact, Exact]:
    """The layer that is fitted to chosen photos, with weights of the classes of all."""
    weights = balanced_weights(photos.labels["pixels"].sum(axis=0))
    ridge: PixelRidge | None = None
    for batch in sample(chosen, size=size, count=len(chosen)):
        found = maps(batch.images)
        ridge = ridge or PixelRidge(found.shape[1], weights)
        ridge.add(found, batch.labels)
    if ridge is None:
        raise _too_few()
    try:
        return ridge.layer()
    except ValueError as error:
        raise PocketuneError(f"no classifier can be computed from these masks: {error}") from error


def _too_few() -> PocketuneError:
    return PocketuneError("too few of the photos can be decoded to compare features on them")


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
