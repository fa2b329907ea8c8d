"""Photos as a network takes them, for whatever looks at what photos make of it."""

import os
from collections.abc import Iterator

from torch import Tensor, nn

from pocketune.data import ImageDataset, sample, training_images
from pocketune.errors import check_positive
from pocketune.networks.normalization import normalize


def sample_batches(
    network: nn.Module,
    photos: ImageDataset | str | os.PathLike[str],
    *,
    size: int = 224,
    count: int = 256,
    batch: int = 8,
) -> Iterator[Tensor]:
    """About `count` photos, spread over all of them, as batches that `network` takes.

    `prune`, `prune_for_memory`, `calibrate` and `restore_batch_norm` look at such batches. Each
    call gives the same ones, once.

    Args:
        network: what they are normalized for: as its `normalization` says, or as ImageNet's
            usually are where it has none.
        photos: as `train` takes them, of which those that train are taken; or a dataset.
        size: side of the images, in pixels.
        count: how many; from there to less than twice as many are taken, or all.
        batch: images in each batch.

    Returns:
        Batches (N, 3, `size`, `size`), decoded while they are iterated over. What cannot be
        decoded is left out.

    Raises:
        PocketuneError: for photos that cannot be used, or a number below 1.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=0.35)
        >>> batches = sample_batches(network, "photos/", size=96)  # doctest: +SKIP
        >>> _ = pocketune.restore_batch_norm(network, batches)  # doctest: +SKIP
    """
    check_positive(size=size, count=count, batch=batch)
    chosen = sample(training_images(photos), size=size, count=count, batch=batch)
    return (normalize(network, found.images) for found in chosen)
