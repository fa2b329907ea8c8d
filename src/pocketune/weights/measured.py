"""Photos for networks: batches to measure on, and batch norms restored from them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketune.data import ImageDataset, sample, training_images
from pocketune.errors import PocketuneError, Remedy, check_positive
from pocketune.networks.about import normalize
from pocketune.weights.batch_norm import restore_batch_norm
from pocketune.weights.create import create_network
from pocketune.weights.formats.files import read_state
from pocketune.weights.formats.folded import is_folded
from pocketune.weights.formats.int8 import INT8
from pocketune.weights.hub import is_hub
from pocketune.weights.saved import recorded_classes


def create_measured(
    network: str,
    *,
    weights: str | None,
    size: int,
    photos: ImageDataset | None,
    norm: str | None = None,
    standardized: bool | None = None,
    classes: int | None = None,
    **options: Any,
) -> nn.Module:
    """A network whose folded batch norms are measured on photos before they become other norms.

    It has the classes of its weights unless `classes` says otherwise. All options but `size` and
    `photos` are those of `create_network`.

    Raises:
        PocketuneError: As `create_network` and `measure_norms`.
    """
    options["classes"] = recorded_classes(weights) if classes is None else classes
    norms: dict[str, Any] = {"norm": norm, "standardized": standardized}
    if not are_folded(weights):
        return create_network(network, weights=weights, **options, **norms)
    created = create_network(network, weights=weights, **options)
    measure_norms(created, photos, size, f"{weights} were folded away")
    if norm in (None, "batch") and not standardized:
        return created
    return create_network(network, weights=created, **options, **norms)


def are_folded(weights: str | None) -> bool:
    """Whether these weights, as `create_network` takes them, have folded batch norms."""
    if weights in (None, "imagenet") or is_hub(weights):
        return False
    path = Path(str(weights))
    return path.suffix == INT8 or is_folded(read_state(path))


def measure_norms(network: nn.Module, photos: ImageDataset | None, size: int, which: str) -> None:
    """Restore the batch norms in `which` weights by photos, in place.

    Raises:
        PocketuneError: `photos` is None.
    """
    if photos is None:
        raise PocketuneError(
            f"the batch norms in {which}",
            remedy=Remedy("measure norms", "name photos to measure them on"),
        )
    restore_batch_norm(network, sample_batches(network, photos, size=size))


def sample_batches(
    network: nn.Module,
    photos: ImageDataset | str | os.PathLike[str],
    *,
    size: int = 224,
    count: int = 256,
    batch: int = 8,
) -> Iterator[Tensor]:
    """About `count` photos, spread over all of them, as batches that `network` takes.

    `prune`, `prune_for_memory`, `calibrate` and `restore_batch_norm` take such batches. Each call
    gives the same batches; they can be iterated over once.

    Args:
        network: The network that the images are normalized for, as `about(network)` says.
        photos: Photos as `train` takes them, of which the training split is used; or a dataset.
        size: Side of the images, in pixels.
        count: The least number of photos; fewer than twice as many are taken, or all of a smaller
            dataset.
        batch: Images in each batch.

    Returns:
        Batches (N, 3, `size`, `size`), decoded during iteration. Photos that cannot be decoded are
        skipped.

    Raises:
        PocketuneError: The photos cannot be used, or a number is below 1.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=0.35)
        >>> batches = sample_batches(network, "photos/", size=96)  # doctest: +SKIP
        >>> _ = pocketune.restore_batch_norm(network, batches)  # doctest: +SKIP
    """
    check_positive(size=size, count=count, batch=batch)
    chosen = sample(training_images(photos), size=size, count=count, batch=batch)
    return (normalize(network, found.images) for found in chosen)
