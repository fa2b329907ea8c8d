"""A kit from a network's name: create it, adapt it, compile it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pocketune.compiler.kit import compile
from pocketune.compiler.trace import normalize
from pocketune.data import ImageDataset, Loader
from pocketune.device.kit import Kit
from pocketune.errors import PocketuneError
from pocketune.methods import Method, adapt
from pocketune.networks import create_network, restore_batch_norm
from pocketune.networks.files import read_state
from pocketune.networks.folded import is_folded

_CLASSES = 1000
"""ImageNet's, of the published weights."""

_MEASURED = 256
"""Photos on which the statistics of folded batch norms are measured."""


def build_kit(
    out: str | os.PathLike[str],
    *,
    network: str,
    method: Method,
    weights: str | None = None,
    width: float = 1.0,
    padding: str = "symmetric",
    size: int = 224,
    batch: int = 8,
    label_smoothing: float = 0.0,
    photos: ImageDataset | None = None,
    save_network: Path | None = None,
) -> Kit:
    """Create a network, adapt it to a method and compile it.

    Args:
        out: The kit's folder or .zip.
        network: One of ``list_networks()``.
        method: What is trained.
        weights: None for random ones, ``"imagenet"``, or a file; see ``create_network``.
        width: Multiplier of every layer's channels.
        padding: ``"symmetric"`` or ``"same"``.
        size: Side of the images, in pixels.
        batch: Images of a training step.
        label_smoothing: Share of the target that is spread over all classes.
        photos: Photos whose classes are the network's, and on which batch norms are measured
            for weights that come without; 1,000 numbered classes where none are given.
        save_network: A ``.safetensors`` file to write all of the network's values to, frozen
            ones included, for training by PyTorch.

    Raises:
        PocketuneError: An argument does not fit, weights cannot be had, or norms that are to be
            trained were folded away and there are no photos to measure them on.
    """
    torch.manual_seed(0)  # the same command makes the same kit
    names = tuple(map(str, range(_CLASSES))) if photos is None else photos.classes
    created = create_network(
        network, weights=weights, classes=len(names), width=width, padding=padding
    )
    own = {name for name, _ in created.named_modules()}
    if method.plan(created).batch_norms & own and _is_folded(weights):
        _measure_norms(
            created, photos, size, f"{weights} were folded away and {method} trains them"
        )
    adapted = adapt(created, method)
    kit = compile(
        adapted, out, batch=batch, size=size, label_smoothing=label_smoothing, classes=names
    )
    if save_network is not None:
        save_file(adapted.state_dict(), save_network)
    return kit


def create_measured(
    network: str,
    *,
    weights: str | None,
    width: float,
    padding: str,
    size: int,
    photos: ImageDataset | None,
) -> nn.Module:
    """A network of ImageNet's classes; batch norms that were folded away are measured on photos."""
    created = create_network(
        network, weights=weights, classes=_CLASSES, width=width, padding=padding
    )
    if _is_folded(weights):
        _measure_norms(created, photos, size, f"{weights} were folded away")
    return created


def _measure_norms(network: nn.Module, photos: ImageDataset | None, size: int, which: str) -> None:
    if photos is None:
        raise PocketuneError(f"the batch norms in {which}: name photos to measure them on")
    restore_batch_norm(network, spread_batches(network, photos, size))


def _is_folded(weights: str | None) -> bool:
    return weights not in (None, "imagenet") and is_folded(read_state(Path(str(weights))))


def spread_batches(network: nn.Module, photos: ImageDataset, size: int) -> Iterator[Tensor]:
    """Some of the photos, spread over all of them, as the network takes them."""
    spread = range(0, len(photos), max(1, len(photos) // _MEASURED))
    loader = Loader(photos.subset(list(spread)), size=size, batch=8, train=False)
    norm: Any = network.normalization
    for batch in loader.epoch(0):
        yield normalize(torch.from_numpy(batch.images), norm.mean, norm.std)
