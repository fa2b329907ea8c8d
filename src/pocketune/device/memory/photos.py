"""The memory that photos take while they are decoded and wait, and their labels with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pocketune.data.loader import AHEAD
from pocketune.tasks.maps import STRIP

if TYPE_CHECKING:
    from pocketune.data.images.cost import Decoding
    from pocketune.kit.manifest import Manifest

_WORKERS = 2
"""Threads that decode photos, each one at a time."""
SCORED_STRIPS = 3
"""Arrays of the size of a strip that a validation of masks makes at once, beside the arena."""


class PhotoBytes(NamedTuple):
    """Bytes of photos.

    Attributes:
        waiting: Of those that wait to be processed, and of their labels.
        decoded: Of those that are decoded at the same time.
        compared: For comparing a mask with a prediction, in a validation.
    """

    waiting: int
    decoded: int
    compared: int


def training_photos(
    manifest: Manifest,
    classes: int,
    decoding: Decoding | None,
    *,
    batch: int,
    accumulate: int,
    photos: int | None,
    returned: float,
) -> PhotoBytes:
    """The memory for the photos of a training run; see `estimate_memory`.

    Args:
        manifest: Of the kit.
        classes: Number of classes of the photos.
        decoding: What decoding the photos takes; by default as of little ones.
        batch: Images that the graphs process at once.
        accumulate: Batches in a step.
        photos: Training photos; by default so many that several batches are prepared at once.
        returned: Bytes that the step takes after the photos of the only batch are decoded.
    """
    together = batch * accumulate
    batches = AHEAD + 1 if photos is None else min(AHEAD + 1, max(1, photos // together))
    label = _label_bytes(manifest, classes)
    waiting = waiting_bytes(manifest.size, (batches + 1) * together, label)
    if manifest.task.dense and decoding is not None:
        images = (AHEAD + 2) * batch
        masks = decoding.waiting(images)
        waiting = max(waiting, waiting_bytes(manifest.size, images) + masks)
    decoded = decoded_bytes(manifest.size, decoding)
    if batches == 1:  # decoded before the step is opened, which gives some of it back
        decoded -= round(min(decoded / 2, returned))
    return PhotoBytes(waiting, decoded, _compared_bytes(manifest, decoding))


def evaluated_photos(
    manifest: Manifest, classes: int, decoding: Decoding | None, photos: int | None = None
) -> PhotoBytes:
    """The memory for photos that are evaluated; `photos` of them, or many."""
    most, dense = (AHEAD + 2) * manifest.batch, manifest.task.dense
    images = most if photos is None else min(most, photos)
    label = 0 if dense else _label_bytes(manifest, classes)
    waiting = waiting_bytes(manifest.size, images, label)
    if dense and decoding is not None:
        waiting += decoding.waiting(images)
    decoded = decoded_bytes(manifest.size, decoding)
    return PhotoBytes(waiting, decoded, _compared_bytes(manifest, decoding))


def _compared_bytes(manifest: Manifest, decoding: Decoding | None) -> int:
    """Bytes for comparing masks with predictions, one by one, or for what is done with these."""
    if not manifest.task.dense:
        return 0
    compared = 0 if decoding is None else max(decoding.compared, decoding.beside)
    return SCORED_STRIPS * 4 * STRIP + compared


def _label_bytes(manifest: Manifest, classes: int) -> int:
    """Bytes of the label of one image."""
    task = manifest.task
    return math.prod(task.label_shape(manifest.size, classes)) * np.dtype(task.label_type).itemsize


def waiting_bytes(size: int, images: int, label: int = 0) -> int:
    """Bytes of images that are ready or in the step, each with a label of so many bytes."""
    return images * (3 * size * size + label)


def decoded_bytes(size: int, decoding: Decoding | None) -> int:
    """Bytes of the photos that are decoded at the same time, and of the crops of them.

    Without `decoding`, they are JPEGs, each of which is decoded at the smallest scale that is at
    least the requested size: a photo of 4:3 at less than twice its side.
    """
    crop = 3 * size * size
    photos = _WORKERS * (4 * crop * 4 // 3) if decoding is None else decoding.total(_WORKERS)
    return photos + _WORKERS * crop
