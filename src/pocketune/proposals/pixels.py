"""How well frozen feature maps tell the classes of pixels apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.data import ImageDataset, sample
from pocketune.device.head.pixels import PixelRidge, known_cells
from pocketune.device.head.sums import Exact
from pocketune.errors import PocketuneError
from pocketune.tasks import Score
from pocketune.tasks.segmentation import balanced_weights

STRENGTH = 1e-3
"""Penalty relative to the mean variance of a feature; cells are many, so that it matters little."""


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
        for each, label in zip(found, batch.labels, strict=True):
            ridge.add(*known_cells(each, label))
    if ridge is None:
        raise _too_few()
    try:
        return ridge.layer(STRENGTH)
    except ValueError as error:
        raise PocketuneError(f"no classifier can be computed from these masks: {error}") from error


def _too_few() -> PocketuneError:
    return PocketuneError("too few of the photos can be decoded to compare features on them")
