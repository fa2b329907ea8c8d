"""Networks whose batch norms were folded away in the weights, measured anew on photos."""

from pathlib import Path

from torch import nn

from pocketune.data import ImageDataset
from pocketune.errors import PocketuneError
from pocketune.weights.batch_norm import restore_batch_norm
from pocketune.weights.create import create_network
from pocketune.weights.files import read_state
from pocketune.weights.folded import is_folded
from pocketune.weights.int8 import INT8
from pocketune.weights.samples import sample_batches
from pocketune.weights.saved import recorded_classes


def create_measured(
    network: str,
    *,
    weights: str | None,
    width: float,
    padding: str,
    size: int,
    photos: ImageDataset | None,
) -> nn.Module:
    """A network of its weights' classes; batch norms that were folded away are measured on photos.

    Raises:
        PocketuneError: as `create_network` and `measure_norms`.
    """
    created = create_network(
        network,
        weights=weights,
        classes=recorded_classes(weights),
        width=width,
        padding=padding,
    )
    if are_folded(weights):
        measure_norms(created, photos, size, f"{weights} were folded away")
    return created


def are_folded(weights: str | None) -> bool:
    """Whether these weights, as of `create_network`, come without the statistics of norms."""
    if weights in (None, "imagenet"):
        return False
    path = Path(str(weights))
    return path.suffix == INT8 or is_folded(read_state(path))


def measure_norms(network: nn.Module, photos: ImageDataset | None, size: int, which: str) -> None:
    """Restore the batch norms in `which` weights by photos, in place.

    Raises:
        PocketuneError: without photos.
    """
    if photos is None:
        raise PocketuneError(f"the batch norms in {which}: name photos to measure them on")
    restore_batch_norm(network, sample_batches(network, photos, size=size))
