"""A kit from a network's name: create it, adapt it, compile it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from pocketune.compiler.pipeline import compile
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.data import ImageDataset, sample
from pocketune.eager import observe_formats
from pocketune.eager.run import save_values
from pocketune.kit.kit import Kit
from pocketune.methods import Method, adapt, final_plan
from pocketune.methods.method import resolve_frozen_bits
from pocketune.surgery import dequantize, float_shapes, quantize_frozen, quantized
from pocketune.tasks import Classification, numbered, task_named
from pocketune.weights import create_network, sample_batches
from pocketune.weights.measured import are_folded, measure_norms
from pocketune.weights.saved import IMAGENET_CLASSES

_CALIBRATED = 192
"""Photos by which a frozen part in 8 bits is calibrated and judged."""

_OBSERVED = 32
"""Photos that show PyTorch the ranges of the maps of a frozen part in 8 bits."""


@contextmanager
def _seeded() -> Iterator[None]:
    """Random numbers from 0 on, so that the same arguments make the same kit; then as before."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        yield


@_seeded()
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
    frozen_bits: int | None = None,
    task: str | None = None,
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
        label_smoothing: As of the task; see ``Classification``.
        photos: Photos whose classes or attributes are the network's, on which batch norms are
            measured for weights that come without, and on which a frozen part in 8 bits is
            calibrated; 1,000 numbered classes where none are given.
        save_network: A ``.safetensors`` file to write all of the network's values to, frozen
            ones included, for training by PyTorch. Where the frozen part of the kit computes with
            integers, the file tells in what formats, as the photos show.
        frozen_bits: As of ``adapt``.
        task: The name of what is learned, such as ``"attributes"``; by default what the photos'
            labels are for, or classification.

    Raises:
        PocketuneError: An argument does not fit, weights cannot be had, or norms that are to be
            trained were folded away and there are no photos to measure them on.
    """
    names = numbered(IMAGENET_CLASSES) if photos is None else photos.classes
    kind = task_named(task) if task else Classification if photos is None else type(photos.labeled)
    created = create_network(
        network, weights=weights, classes=len(names), width=width, padding=padding
    )
    plan = final_plan(method, float_shapes(created))
    rounded = bool(quantized(created))
    bits = resolve_frozen_bits(created, frozen_bits, method.frozen_bits)
    own = {name for name, _ in created.named_modules()}
    if plan.batch_norms & own and are_folded(weights):
        measure_norms(created, photos, size, f"{weights} were folded away and {method} trains them")
    # in float32 first, which the error of the kit's frozen part is measured against; weights that
    # were published in 8 bits are not rounded again
    adapted = adapt(created, method, frozen_bits=8 if rounded and bits == 8 else 32)
    kit = compile(
        adapted,
        out,
        batch=batch,
        size=size,
        task=kind(names).configured(label_smoothing=label_smoothing),
        frozen_bits=bits,
        calibration=_calibration(photos, size) if bits == 8 and photos is not None else None,
    )
    if save_network is not None:
        if bits == 8:
            quantize_frozen(adapted)
            if photos is not None and _bears_integers(kit):
                observe_formats(
                    adapted, sample_batches(adapted, photos, size=size, count=_OBSERVED)
                )
        else:
            dequantize(adapted, quantized(adapted))
        save_values(adapted, save_network)
    return kit


def _bears_integers(kit: Kit) -> bool:
    """Whether the frozen part was found to compute with integers in all of its layers."""
    found = kit.manifest.quantization
    return found is not None and found.activations == 8 and found.float_layers == 0


def _calibration(photos: ImageDataset, size: int) -> Calibration | None:
    """Some of the photos, spread over all of them; None where fewer than two can be read."""
    batches = list(sample(photos, size=size, count=_CALIBRATED))
    if sum(len(batch.images) for batch in batches) < 2:
        return None
    images = np.concatenate([batch.images for batch in batches])
    labels = np.concatenate([batch.labels for batch in batches])
    return Calibration(images, photos.labeled.strata(labels))
