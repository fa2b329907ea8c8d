"""Photos that an export is calibrated and compared on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import StrPath
from pocketune.data import ImageDataset, sample, unlabeled_splits
from pocketune.device.use.held_back import run_photos
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
        photos: The photos, divided as a run divides those of one class; None stands for the run's
            own.
        needed: Whether it is an error if there are none.
    """
    if photos is not None:
        train, val = unlabeled_splits(photos)
        return train, val if len(val) else train
    try:
        own = run_photos(model)
    except PocketuneError:
        if needed:
            raise
        return None, None
    return own.train, own.val if len(own.val) else own.train


def sampled_images(
    photos: ImageDataset, model: Model, count: int, *, least: int
) -> NDArray[np.uint8]:
    """Images (N, S, S, 3) as the model sees them, spread over the photos.

    Raises:
        PocketuneError: Fewer than `least` can be read.
    """
    size, task = model.manifest.size, model.task
    batches = [batch.images for batch in sample(photos, size=size, count=count, task=task)]
    found = sum(map(len, batches))
    if found < least:
        raise PocketuneError(
            f"{photos.root} has {found} readable photos, and an export needs {least}: give others"
        )
    return np.concatenate(batches)
