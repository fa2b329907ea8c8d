"""The score of a kit's features on photos, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import sample
from pocketune.device.head import fit_head
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.data import ImageDataset
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Score

PHOTOS = 240
"""Number of photos, evenly spread; a few hundred order networks as well as all of them."""


def score_kit(kit: Kit, photos: ImageDataset) -> Score:
    """Leave-one-out score of the classifier that is computed from embeddings in closed form.

    Args:
        kit: The kit; its classes do not matter.
        photos: Labeled photos.

    Raises:
        PocketuneError: The photos allow no such score.
    """
    from pocketune.device.engine.onnx import OnnxEngine

    engine = OnnxEngine(kit, kit.state())
    batches = list(sample(photos, size=kit.manifest.size, count=PHOTOS))
    if not batches:
        raise PocketuneError("none of the photos can be decoded")
    embeddings = np.concatenate([engine.embed(batch.images) for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    head = fit_head(lambda: iter([(embeddings, labels)]), photos.labeled)
    if head is None or head.score is None:
        raise PocketuneError("no classifier can be computed from the features of these photos")
    return head.score
