"""Photos that an export is calibrated and compared on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import StrPath
from pocketune.data import ImageDataset, MaskOptions, load_splits, sample
from pocketune.device.use.evaluate import run_photos
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError

CALIBRATED = 128
"""Photos that an export in integers is calibrated on; half of them are held out to judge it."""
COMPARED = 256
"""Validation photos, at least where there are so many, that both models are compared on."""


def photos_for(
    model: Model, photos: StrPath | None, *, needed: bool
) -> tuple[ImageDataset | None, ImageDataset | None]:
    """Photos to calibrate on, and others to compare on; the same where there are no others.

    Args:
        model: A run or a kit.
        photos: The photos, divided as a run divides them by default; None stands for the run's own.
        needed: Whether it is an error if there are none.
    """
    if photos is not None:
        splits = load_splits(Path(photos), val_fraction=None, masks=MaskOptions())
        return splits.train, splits.val if len(splits.val) else splits.train
    try:
        own = run_photos(model)
    except PocketuneError:
        if needed:
            raise
        return None, None
    return own.train, own.val if len(own.val) else own.train


def sampled_images(photos: ImageDataset, size: int, count: int, *, least: int) -> NDArray[np.uint8]:
    """Images (N, size, size, 3), spread over the photos.

    Raises:
        PocketuneError: Fewer than `least` can be read.
    """
    batches = [batch.images for batch in sample(photos, size=size, count=count)]
    found = sum(map(len, batches))
    if found < least:
        raise PocketuneError(
            f"{photos.root} has {found} readable photos, and an export needs {least}: give others"
        )
    return np.concatenate(batches)
