"""Compile an adapted network into a kit."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx
import safetensors.numpy
from safetensors import SafetensorError
from torch import nn

from pocketune.compiler.capture.trace import running_statistics, trained_parameters
from pocketune.compiler.check import CompileError, check_engine
from pocketune.compiler.graphs import Graphs
from pocketune.compiler.manifest import with_quantized_features
from pocketune.compiler.other_classes import check_other_classes
from pocketune.compiler.passes.blocked import block_depthwise
from pocketune.compiler.prepare import Prepared, prepare
from pocketune.compiler.progress import Progress, silent
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.search import quantize_features
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError, warn
from pocketune.files import writing
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import KitError
from pocketune.kit.names import BLOCKED_STEP, FEATURES, PARAMETERS, PREDICT, STEP
from pocketune.kit.writer import check_place, write_kit
from pocketune.methods.method import check_frozen_bits
from pocketune.networks.about import about
from pocketune.networks.checks import require_network
from pocketune.networks.copies import gradients_on
from pocketune.tasks import Task

_TRACED, _CHECKED = 0.2, 0.85
"""Shares of the time that are usually over when the step is traced, and when it is checked."""

_NO_ROOM = "make room there, or name another place with the environment variable TMPDIR"


def compile(
    network: nn.Module,
    out: str | os.PathLike[str],
    *,
    batch: int = 8,
    size: int = 224,
    task: Task | None = None,
    frozen_bits: int | None = None,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> Kit:
    """Compile the training step of an adapted network into a kit.

    First the compiled step and PyTorch train for five steps side by side. A kit that disagrees
    is not written.

    Args:
        network: As `pocketune.adapt` returns it, or any other, whose parameters with
            `requires_grad` are trained; it is not changed. It takes images (N, 3, `size`, `size`),
            normalized as `about(network)` says.
        out: Folder of the kit, or a file whose name ends in .zip. A kit there is replaced.
        batch: Images of a training step; at least 2 where a norm uses batch statistics on
            maps of one pixel.
        size: Height and width of the images, in pixels.
        task: What is learned, with the names of the network's outputs, such as
            `Classification(("cat", "dog"))` or, for a network whose output is (N, classes, h, w),
            `Segmentation(("sky", "road"))`; by default the classes are "0", "1", ... The device
            trains for other classes too, with a new classifier.
        frozen_bits: 8 or 32 for the weights of frozen layers; None leaves them as `adapt`
            made them.
        calibration: Images of `size`, of the kind that the kit will see. With them, a frozen part
            in 8 bits computes in integers, faster and with smaller temporaries. Without them,
            only its weights are rounded. The manifest's `quantization` holds the error.
        progress: Called with what is done next, and the share of the time that is over.

    Returns:
        The kit, opened.

    Raises:
        CompileError: The compiled step does not compute what PyTorch computes.
        PocketuneError: No parameter is trained, or the output layer is not; a value is not finite
            or not in float32; an argument is out of range or of the wrong type; the forward pass
            cannot be traced; or an operator has no lowering rule.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", width=0.35, classes=2)
        >>> network = pocketune.adapt(network, pocketune.TopBlocks(blocks=1))
        >>> task = pocketune.Classification(("cat", "dog"))
        >>> compile(network, "kit/", task=task)  # doctest: +SKIP
        <Kit kit: mobilenet_v2, blocks, 224 px, batch 8, 2 classes>
    """
    _check_place(out)
    _check_task(task)
    _check_images(calibration, size)
    if calibration is not None:
        _check_bits(network, frozen_bits)
    progress = progress or silent
    progress("tracing the training step", 0.0)
    prepared = prepare(
        network,
        batch=batch,
        size=size,
        task=task,
        frozen_bits=frozen_bits,
        calibrated=calibration is not None,
    )
    if calibration is not None and not prepared.calibrated:
        warn(
            "calibration changes nothing: this kit has no frozen part that runs apart from the "
            "training step; leave it out, or freeze the first layers"
        )
    return check_and_write(prepared, out, calibration, progress)


@gradients_on()
def check_and_write(
    prepared: Prepared,
    out: str | os.PathLike[str],
    calibration: Calibration | None,
    progress: Progress,
) -> Kit:
    """Compare a prepared step with PyTorch, calibrate its frozen part, and write the kit.

    Args:
        prepared: With `calibrated` only if there is a calibration.
        out: As in `compile`.
        calibration: As in `compile`; unused if nothing is calibrated.
        progress: As in `compile`.

    Raises:
        CompileError: The compiled step does not compute what PyTorch computes.
        PocketuneError: The kit cannot be written.
    """
    network, graphs, manifest = prepared.network, prepared.graphs, prepared.manifest
    with (
        tempfile.TemporaryDirectory(prefix="pocketune-") as scratch,
        writing(scratch, SafetensorError, remedy=_NO_ROOM),
    ):
        files = _write_files(graphs, network, Path(scratch))
        step = partial(_checking, progress)
        try:
            part = replace(manifest, batch=manifest.micro_batch)  # as the graphs compute
            kit = write_kit(Path(scratch) / "kit", part, files)
            engine = OnnxEngine(kit, kit.state())
            plain = _without_blocks(kit) if BLOCKED_STEP in files else None
            check_engine(
                engine, network, prepared.settings, prepared.masks, last=plain, progress=step
            )
        except KitError as error:
            raise _does_not_run(network, error) from error
        check_other_classes(kit, network, prepared.settings, prepared.masks)
        if prepared.calibrated and graphs.features is not None and calibration is not None:
            progress("measuring the frozen part in 8 bits", _CHECKED)
            features, cost = quantize_features(graphs.features, calibration, prepared.exact)
            onnx.save(features, files[FEATURES])
            return write_kit(out, with_quantized_features(manifest, features, cost), files)
        return write_kit(out, manifest, files, verify=False)


def _without_blocks(kit: Kit) -> OnnxEngine:
    """An engine on the graph of the step that processors without blocked kernels run."""
    files = {name: value for name, value in kit.manifest.files.items() if name != BLOCKED_STEP}
    return OnnxEngine(replace(kit, manifest=replace(kit.manifest, files=files)), kit.state())


def _does_not_run(network: nn.Module, error: KitError) -> CompileError:
    name = type(network).__name__
    _, mixed, operator = str(error).partition("Type Error: ")
    if mixed:
        return CompileError(
            f"{name} computes with a type that an operator of a kit does not take; convert it with "
            f"float() first ({operator.removesuffix(')')})"
        )
    return CompileError(
        f"what {name} computes became a graph that does not run, as if its forward method wrote "
        f"into its buffers or counted its images: {error}"
    )


def _checking(progress: Progress, step: int, steps: int) -> None:
    share = _TRACED + (step - 1) / steps * (_CHECKED - _TRACED)
    progress(f"comparing step {step} of {steps} with PyTorch", share)


def _check_task(task: object) -> None:
    if task is not None and not isinstance(task, Task):
        raise PocketuneError(
            f"task={task!r} is not a Task; give one with the names of the outputs, such as "
            'Classification(("cat", "dog"))'
        )


def _check_images(calibration: object, size: int) -> None:
    if calibration is None:
        return
    if not isinstance(calibration, Calibration):
        raise PocketuneError(
            f"calibration is a {type(calibration).__name__}; give Calibration(images, labels)"
        )
    if calibration.images.shape[1:3] != (size, size):
        raise PocketuneError(
            f"the calibration images have shape {calibration.images.shape}; give them as "
            f"(N, {size}, {size}, 3), as the kit's size={size}"
        )


def _check_bits(network: nn.Module, frozen_bits: int | None) -> None:
    """Check that the frozen part is to be in 8 bits."""
    require_network(network)
    bits = about(network).frozen_bits if frozen_bits is None else frozen_bits
    check_frozen_bits(bits)
    if bits != 8:
        raise PocketuneError(
            "calibration is for a frozen part in 8 bits, and this one has 32: give frozen_bits=8, "
            "or leave it out"
        )


def _check_place(out: str | os.PathLike[str]) -> None:
    if not isinstance(out, (str, os.PathLike)):
        raise PocketuneError(f"out={out!r} must be a folder, or a file whose name ends in .zip")
    check_place(out)


def _write_files(graphs: Graphs, network: nn.Module, folder: Path) -> dict[str, Path]:
    """Write the kit's files into a folder; returns their paths by name."""
    models = {
        FEATURES: graphs.features,
        STEP: graphs.step,
        BLOCKED_STEP: block_depthwise(graphs.step),
        PREDICT: graphs.predict,
    }
    for name, model in models.items():
        if model is not None:
            onnx.checker.check_model(model)  # the device would leave a blocked step unused
            onnx.save(model, folder / name)
    tensors = {**trained_parameters(network), **running_statistics(network)}
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    (folder / PARAMETERS).write_bytes(safetensors.numpy.save(arrays))
    return {file.name: file for file in folder.iterdir()}
