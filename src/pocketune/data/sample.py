"""A few of many images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.data.loader import Loader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.data.dataset import ImageDataset
    from pocketune.data.loader import Batch


def sample(photos: ImageDataset, *, size: int, count: int, batch: int = 8) -> Iterator[Batch]:
    """About `count` of the images, spread over all of them, as they are evaluated.

    It is the same images whenever it is called. What cannot be decoded is left out.

    Args:
        photos: where they are taken from.
        size: side that they are brought to, in pixels.
        count: how many; from there to less than twice as many are taken.
        batch: images in each batch.
    """
    spread = range(0, len(photos), max(1, len(photos) // count))
    return Loader(photos.subset(list(spread)), size=size, batch=batch, train=False).epoch(0)
