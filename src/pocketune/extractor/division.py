"""The photos that the supernet is adapted to, and those that sub-networks are measured on."""

from __future__ import annotations

import numpy as np

from pocketune.data import ImageDataset, stratify
from pocketune.errors import PocketuneError
from pocketune.papers.search_cost import SHARE

FEWEST = 5
"""Photos of each class: one of them measures, and four adapt."""


def divided(photos: ImageDataset, seed: int) -> tuple[ImageDataset, ImageDataset]:
    """A random 80 % of the photos of each class, and the others.

    Raises:
        PocketuneError: The photos have masks, or a class has too few photos.
    """
    _require_photos(photos)
    fit, held = stratify(photos.groups, val_fraction=1 - SHARE, seed=seed)
    return photos.subset(fit), photos.subset(held)


def _require_photos(photos: ImageDataset) -> None:
    """Refuse masks, and classes of too few photos to adapt and to measure."""
    if photos.labeled.dense:
        raise PocketuneError(
            "a feature extractor is adapted to classes or attributes of whole images, and these "
            "photos have masks"
        )
    groups = photos.groups
    counts = np.bincount(groups)
    few = int(np.argmin(np.where(counts > 0, counts, len(groups) + 1)))
    if counts[few] < FEWEST:
        name = photos.classes[few] if photos.labeled.strata(photos.labels) is not None else "all"
        raise PocketuneError(
            f"{name} has {counts[few]} training photos, and adapting a feature extractor takes "
            f"{FEWEST} of each class, to learn from and to measure on; add photos, or train a kit "
            "without adapting it"
        )
