"""Build a kit from the name of a network: create it, adapt it, compile it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from pocketune.compiler.draft import draft, drafted
from pocketune.compiler.pipeline import check_and_write
from pocketune.compiler.prepare import prepare
from pocketune.compiler.progress import Progress, part, silent
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.data import ImageDataset, sample
from pocketune.eager import observe_formats
from pocketune.eager.run import save_values
from pocketune.errors import PocketuneError, check_choice, check_positive
from pocketune.forecast import draft as draft_config
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest
from pocketune.kit.writer import check_place
from pocketune.methods import Method, adapt, final_plan
from pocketune.methods.method import resolve_frozen_bits
from pocketune.networks import Normalization, list_networks
from pocketune.networks.registry import is_dense, published_classes
from pocketune.onnx_import import load_onnx
from pocketune.onnx_import.load import output_classes, with_classes
from pocketune.seeding import seeded
from pocketune.surgery import dequantize, float_shapes, quantize_frozen, quantized
from pocketune.tasks import Task, default_task, task_named
from pocketune.weights import create_network, sample_batches
from pocketune.weights.batch_norm import is_folded
from pocketune.weights.describe import describe_network
from pocketune.weights.formats.int8 import INT8
from pocketune.weights.measured import are_folded, measure_norms

_NORMALIZATIONS = {
    "imagenet": Normalization.IMAGENET,
    "half": Normalization.HALF,
    "unit": Normalization.UNIT,
    "pixels": Normalization.PIXELS,
}

_CALIBRATED = 192
"""Number of photos that calibrate and evaluate an 8-bit frozen part."""

_CREATED = 0.1
"""Share of the time after which a network is usually created and its photos are read."""

_OBSERVED = 32
"""Number of photos from which PyTorch measures the activation ranges of an 8-bit frozen part."""


@seeded()  # equal arguments give equal kits
def build_kit(
    out: str | os.PathLike[str],
    *,
    network: str,
    method: Method,
    size: int = 224,
    batch: int = 8,
    label_smoothing: float = 0.0,
    loss_stride: int | None = None,
    photos: ImageDataset | None = None,
    classes: int | None = None,
    save_network: Path | None = None,
    frozen_bits: int | None = None,
    task: str | None = None,
    normalization: str | None = None,
    check: Callable[[Manifest], None] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Kit:
    """Create a network, adapt it to a method and compile it.

    Args:
        out: The kit's folder or .zip.
        network: One of `list_networks()`, or an `.onnx` file; see `load_onnx`.
        method: The method that selects what is trained.
        size: Image height and width, in pixels.
        batch: Images in a training step.
        label_smoothing: Option of the task.
        loss_stride: Option of a task with an output for each pixel: rows and columns of labels
            between those that the loss reads.
        photos: Labeled photos. They define the classes or attributes, calibrate an 8-bit frozen
            part, and restore batch norms that were folded into the weights.
        classes: Number of numbered classes, without photos; by default 1,000, or 21 if the network
            classifies pixels, or those of the `.onnx` file.
        save_network: A `.safetensors` file for all values of the network, frozen ones included,
            for training with PyTorch. If the frozen part of the kit computes with integers, the
            file also holds the formats measured on the photos.
        frozen_bits: See `adapt`.
        task: Name of the task, such as `"attributes"`; by default the task of the photos'
            labels, or that of the network.
        normalization: `"imagenet"`, `"half"` (-1 to 1), `"unit"` (0 to 1) or `"pixels"` (0 to 255),
            of the images that the weights were trained with; None follows the weights or the
            `.onnx` file, or is ImageNet's.
        check: Called with a draft of the kit's manifest before the kit is compared with PyTorch,
            which takes longer; what it raises ends the building.
        progress: Called with what is done next, and the share of the time that is over.
        options: Those of `create_network`, such as `weights` and `width`; a file has none.

    Raises:
        PocketuneError: An argument is invalid, the weights cannot be loaded, the photos do not have
            the labels that the network needs, or the method trains norms that were folded away and
            there are no photos to restore them from.
    """
    check_place(out)
    _check_classes(classes, photos)
    progress = progress or silent
    progress("creating the network", 0.0)
    if normalization is not None:
        check_choice(_NORMALIZATIONS, normalization=normalization)
    chosen = None if normalization is None else _NORMALIZATIONS[normalization]
    read = _read_onnx(network, size, chosen, options) if _is_onnx(network) else None
    learned = _task(network, photos, classes, task, read, size).configured(
        **_given(label_smoothing=label_smoothing, loss_stride=loss_stride)
    )
    count = len(learned.classes)
    created = (
        create_network(network, classes=count, normalization=chosen, **options)
        if read is None
        else with_classes(read, count, size)
    )
    _restore_norms(created, method, photos, size, weights=options.get("weights"), name=network)
    rounded = bool(quantized(created))
    bits = resolve_frozen_bits(created, frozen_bits, method.frozen_bits)
    # Adapt in float32 first: the error of the kit's frozen part is measured against it. Weights
    # that were published in 8 bits are not rounded again.
    adapted = adapt(created, method, frozen_bits=8 if rounded and bits == 8 else 32)
    calibration = _calibration(photos, size) if bits == 8 and photos is not None else None
    progress = part(progress, _CREATED)
    progress("tracing the training step", 0.0)
    prepared = prepare(
        adapted,
        batch=batch,
        size=size,
        task=learned,
        frozen_bits=bits,
        calibrated=calibration is not None,
    )
    if check is not None:
        check(drafted(prepared))
    kit = check_and_write(prepared, out, calibration, progress)
    if save_network is not None:
        if bits == 8:
            quantize_frozen(adapted)
        else:
            dequantize(adapted, quantized(adapted))
        if bits == 8 and photos is not None and _bears_integers(kit):
            observe_formats(adapted, sample_batches(adapted, photos, size=size, count=_OBSERVED))
        save_values(adapted, save_network)
    return kit


def forecast_kit(
    network: str,
    method: Method,
    *,
    size: int = 224,
    batch: int = 8,
    frozen_bits: int | None = None,
    classes: int | None = None,
    **options: Any,
) -> Manifest:
    """The manifest of the kit that `build_kit` would write with photos, without building it.

    See `forecast.draft`. Of an `.onnx` file the whole network is read.

    Args:
        network: One of `list_networks()`, or an `.onnx` file.
        method: The method that selects what is trained.
        size: Image height and width, in pixels.
        batch: Images that a step processes at once.
        frozen_bits: 8 or 32; None follows the method and the weights.
        classes: Number of classes; None stands for those of the published network or the file.
        options: Those of `create_network`; a file has none.

    Raises:
        PocketuneError: As `build_kit`, except for disagreements with PyTorch.
    """
    if _is_onnx(network):
        read = open_network(network, size=size, classes=classes, **options)
        adapted = adapt(read, method, frozen_bits=frozen_bits)
        return draft(adapted, batch=batch, size=size, calibrated=True)
    weights = options.get("weights")
    if frozen_bits is None and weights is not None and Path(weights).suffix == INT8:
        frozen_bits = 8
    count = published_classes(network) if classes is None else classes
    config = describe_network(network, classes=count, **options)
    return draft_config(config, method, size=size, batch=batch, frozen_bits=frozen_bits)


def open_network(
    network: str, *, size: int = 224, classes: int | None = None, **options: Any
) -> nn.Module:
    """The network of a name, or that in an `.onnx` file, to count what it takes.

    Norms that were folded away get statistics of no photos, on which no count depends.

    Args and errors are those of `forecast_kit`.
    """
    if _is_onnx(network):
        made = _read_onnx(network, size, None, options)
        made = made if classes is None else with_classes(made, classes, size)
    else:
        count = published_classes(network) if classes is None else classes
        made = create_network(network, classes=count, **options)
    for norm in made.modules():
        if isinstance(norm, nn.BatchNorm2d) and is_folded(norm):
            norm.reset_running_stats()
    return made


def _check_classes(classes: int | None, photos: ImageDataset | None) -> None:
    if classes is None:
        return
    check_positive(classes=classes)
    if photos is not None:
        raise PocketuneError(
            f"classes={classes} is not possible with photos, which define the classes: leave out "
            "one of them"
        )


def _is_onnx(network: str) -> bool:
    return Path(network).suffix == ".onnx"


def _read_onnx(
    network: str, size: int, normalization: Normalization | None, options: dict[str, Any]
) -> nn.Module:
    """The network in an ONNX file, with the file's classes."""
    for name, value in options.items():
        if value is not None:
            raise PocketuneError(
                f"{name}={value!r} is not possible with {network}: the file has the whole network, "
                "and its weights"
            )
    return load_onnx(network, size=size, normalization=normalization)


def _task(
    network: str,
    photos: ImageDataset | None,
    classes: int | None,
    task: str | None,
    read: nn.Module | None,
    size: int,
) -> Task:
    """What the network learns, with the classes of the photos or as many as are asked for."""
    dense = is_dense(network)
    if photos is None:
        published = published_classes(network) if read is None else output_classes(read, size)
        labeled = default_task(classes or published, dense=dense)
    else:
        labeled = photos.labeled
    kind = task_named(task) if task else type(labeled)
    if kind.dense != dense and network in list_networks():
        classified = "pixels" if dense else "images"
        known = ", ".join(list_networks(dense=kind.dense))
        raise PocketuneError(
            f"{network} classifies {classified}, which the task {kind.name} does not: give photos "
            f"with other labels, or choose one of {known}"
        )
    if classes == 1 and kind.activation == "softmax":
        raise PocketuneError(
            f"classes=1 leaves the task {kind.name} nothing to tell apart: give 2 or more, or "
            "task='attributes' for what an image has or not"
        )
    return kind(labeled.classes)


def _restore_norms(
    network: nn.Module,
    method: Method,
    photos: ImageDataset | None,
    size: int,
    *,
    weights: str | None,
    name: str,
) -> None:
    """Restore batch norms that were folded into the weights, in place, if the method trains any."""
    plan = final_plan(method, float_shapes(network))
    own = {name for name, _ in network.named_modules()}
    trained = plan.batch_norms & own
    folded = are_folded(weights) or any(is_folded(network.get_submodule(n)) for n in trained)
    if trained and folded:
        source = name if weights is None else weights
        measure_norms(network, photos, size, f"{source} were folded away and {method} trains them")


def _given(**options: float | None) -> dict[str, float]:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def _bears_integers(kit: Kit) -> bool:
    """Whether every layer of the frozen part can compute with integers accurately enough."""
    found = kit.manifest.quantization
    return found is not None and found.activations == 8 and found.float_layers == 0


def _calibration(photos: ImageDataset, size: int) -> Calibration | None:
    """An evenly spaced sample of the photos; None if fewer than two of them can be read."""
    batches = list(sample(photos, size=size, count=_CALIBRATED))
    if sum(len(batch.images) for batch in batches) < 2:
        return None
    images = np.concatenate([batch.images for batch in batches])
    if photos.labeled.strata(photos.labels[:1]) is None:
        return Calibration(images, None)
    labels = np.concatenate([batch.labels for batch in batches])
    return Calibration(images, photos.labeled.strata(labels))
