"""The score of frozen features on photos, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Loader, sample
from pocketune.device.head import fit_head
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.data import ImageDataset
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Labels, Score

    Embed = Callable[[NDArray[np.uint8]], FloatArray]

BATCH = 8
ALIKE = 0.95
"""Correlation of the embeddings of kits of one network; its frozen part may be rounded in one."""


class Features:
    """Embeddings of photos by one network; they are kept, so that only new photos take time.

    Args:
        photos: Labeled photos.
        size: Height and width of the images, in pixels.
    """

    def __init__(self, photos: ImageDataset, size: int) -> None:
        self._photos = photos
        self._size = size
        self._kept: dict[int, tuple[FloatArray, Labels]] = {}

    def score(self, embed: Embed, count: int) -> tuple[Score, int]:
        """Leave-one-out score of the classifier that is computed from embeddings in closed form.

        Args:
            embed: Gives embeddings (N, D) of uint8 images (N, size, size, 3).
            count: About so many photos are taken, evenly spread over each class; up to twice as
                many.

        Returns:
            The score, and of how many photos it is.

        Raises:
            PocketuneError: The photos allow no such score.
        """
        spread = self._photos.spread(count).tolist()
        self._add([index for index in spread if index not in self._kept], embed)
        known = [self._kept[index] for index in spread if index in self._kept]
        if not known:
            raise PocketuneError("none of the photos can be decoded")
        embeddings, labels = (np.stack(part) for part in zip(*known, strict=True))
        head = fit_head(lambda: iter([(embeddings, labels)]), self._photos.labeled)
        if head is None or head.score is None:
            raise PocketuneError("no classifier can be computed from the features of these photos")
        return head.score, len(known)

    def _add(self, indices: list[int], embed: Embed) -> None:
        if not indices:
            return
        part = self._photos.subset(indices)
        places = dict(zip(part.names, indices, strict=True))
        for batch in Loader(part, size=self._size, batch=BATCH, train=False).epoch(0):
            for name, *known in zip(batch.names, embed(batch.images), batch.labels, strict=True):
                self._kept[places[name]] = known[0], known[1]


def embedding(kit: Kit) -> Embed:
    """Computes the embeddings of a kit; its classes do not matter."""
    from pocketune.device.engine.onnx import OnnxEngine

    return OnnxEngine(kit, kit.state()).embed


def first_embeddings(kit: Kit, photos: ImageDataset) -> FloatArray:
    """Embeddings (N, D) of a few photos.

    Raises:
        PocketuneError: None of the photos can be decoded.
    """
    batch = next(iter(sample(photos, size=kit.manifest.size, count=kit.manifest.batch)), None)
    if batch is None:
        raise PocketuneError("none of the photos can be decoded")
    return embedding(kit)(batch.images)


def alike(one: FloatArray, other: FloatArray) -> bool:
    """Whether embeddings of the same photos are by the same values of one network."""
    if one.shape != other.shape:
        return False
    pair = [array.astype(np.float64) - array.mean() for array in (one, other)]
    size = np.linalg.norm(pair[0]) * np.linalg.norm(pair[1])
    return bool((pair[0] * pair[1]).sum() > ALIKE * size)
