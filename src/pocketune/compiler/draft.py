"""The manifest that a kit will have, before anything is calibrated, checked or written."""

from __future__ import annotations

from torch import nn

from pocketune.compiler.manifest import with_quantized_features
from pocketune.compiler.prepare import Prepared, prepare
from pocketune.compiler.quantize.static import StaticQuantizer, nominal_ranges
from pocketune.kit.manifest import Manifest, Quantization
from pocketune.tasks import Task


def draft(
    network: nn.Module,
    *,
    batch: int = 8,
    size: int = 224,
    task: Task | None = None,
    frozen_bits: int | None = None,
    calibrated: bool = False,
) -> Manifest:
    """The manifest of the kit that `compile` would write, without files and measured errors.

    The graphs are those of the kit, so that memory and work are predicted from the same figures.
    Values do not matter, so the network may be randomly initialized: where the values of pretrained
    weights change a graph, it is by a few equal biases that share a constant.

    Args:
        network: As in `compile`; it is not changed.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.
        task: What is learned.
        frozen_bits: 8 or 32 for the kernels of frozen convolutions.
        calibrated: Whether images will calibrate a frozen part in 8 bits; it is then drafted with
            all its layers in integers.

    Raises:
        PocketuneError: As `compile`, except for disagreements with PyTorch.
    """
    return drafted(
        prepare(
            network,
            batch=batch,
            size=size,
            task=task,
            frozen_bits=frozen_bits,
            calibrated=calibrated,
            compared=False,
        )
    )


def drafted(prepared: Prepared) -> Manifest:
    """The manifest of the kit that will be written of a prepared step; see `draft`."""
    features = prepared.graphs.features
    if features is None or not prepared.calibrated:
        return prepared.manifest
    quantizer = StaticQuantizer(features, nominal_ranges(features))
    quantization = Quantization(activations=8, layers=len(quantizer.layers))
    return with_quantized_features(prepared.manifest, quantizer.quantize(), quantization)
