"""One CPU or several devices, each with its own part of the photos.

Lightning Fabric is an optional package: `pip install "pocketune[retrain]"`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.data import ImageDataset, Loader
from pocketune.errors import PocketuneError, first_line
from pocketune.networks import normalize


def make_fabric(accelerator: str, devices: int, purpose: str) -> Any:
    """A Lightning Fabric, to be launched.

    Args:
        accelerator: `"cpu"`, `"cuda"` or `"auto"`.
        devices: Number of devices, each with a process.
        purpose: What needs it, for messages.

    Raises:
        PocketuneError: It is not installed, or these devices are not there.
    """
    try:
        from lightning_fabric import Fabric
    except ModuleNotFoundError as error:
        raise PocketuneError(
            f"{purpose} needs lightning-fabric, which is not installed here; install it with: "
            'pip install "pocketune[retrain]"'
        ) from error
    try:
        return Fabric(accelerator=accelerator, devices=devices)
    except (ValueError, TypeError, RuntimeError) as error:
        raise PocketuneError(
            f"accelerator={accelerator!r} with devices={devices} is not available here "
            f"({first_line(error)}); use accelerator 'cpu' and one device"
        ) from error


def gpus(fabric: Any) -> list[int]:
    """The GPU of this process, whose random state is to be restored; none on a CPU."""
    return [fabric.device.index] if fabric.device.type == "cuda" else []


def own_loader(photos: ImageDataset, fabric: Any, *, size: int, batch: int, seed: int) -> Loader:
    """Batches of the photos of this process: as many as of every other, so that none waits."""
    rank, world = fabric.global_rank, fabric.world_size
    own = photos.subset(list(range(rank, len(photos) // world * world, world)))
    return Loader(own, size=size, batch=batch, train=True, seed=seed)


def device_batches(
    network: nn.Module, loader: Loader, epoch: int, fabric: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (N, 3, size, size), normalized for `network`, and labels, on this process' device."""
    for batch in loader.epoch(epoch):
        # bytes travel to the device, and become numbers of 32 bits there
        images, labels = map(torch.from_numpy, (batch.images, batch.labels))
        images, labels = fabric.to_device((images, labels))
        yield normalize(network, images), labels
