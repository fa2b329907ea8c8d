"""The score of a kit's features on photos, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import sample
from pocketune.device.head import fit_head
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray
    from pocketune.data import ImageDataset
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Score

ALIKE = 0.95
"""Correlation of the embeddings of kits of one network; its frozen part may be rounded in one."""


def score_kit(kit: Kit, photos: ImageDataset, count: int) -> tuple[Score, int]:
    """Leave-one-out score of the classifier that is computed from embeddings in closed form.

    Args:
        kit: The kit; its classes do not matter.
        photos: Labeled photos.
        count: About so many of them are taken, evenly spread.

    Returns:
        The score, and of how many photos it is.

    Raises:
        PocketuneError: The photos allow no such score.
    """
    from pocketune.device.engine.onnx import OnnxEngine

    engine = OnnxEngine(kit, kit.state())
    batches = list(sample(photos, size=kit.manifest.size, count=count))
    if not batches:
        raise PocketuneError("none of the photos can be decoded")
    embeddings = np.concatenate([engine.embed(batch.images) for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    head = fit_head(lambda: iter([(embeddings, labels)]), photos.labeled)
    if head is None or head.score is None:
        raise PocketuneError("no classifier can be computed from the features of these photos")
    return head.score, len(labels)


def first_embeddings(kit: Kit, photos: ImageDataset) -> FloatArray:
    """Embeddings (N, D) of a few photos."""
    from pocketune.device.engine.onnx import OnnxEngine

    batch = next(iter(sample(photos, size=kit.manifest.size, count=kit.manifest.batch)), None)
    if batch is None:
        raise PocketuneError("none of the photos can be decoded")
    return OnnxEngine(kit, kit.state()).embed(batch.images)


def alike(one: FloatArray, other: FloatArray) -> bool:
    """Whether embeddings of the same photos are by the same values of one network."""
    if one.shape != other.shape:
        return False
    pair = [array.astype(np.float64) - array.mean() for array in (one, other)]
    size = np.linalg.norm(pair[0]) * np.linalg.norm(pair[1])
    return bool((pair[0] * pair[1]).sum() > ALIKE * size)
