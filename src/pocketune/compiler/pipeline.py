"""Compile an adapted network into a kit."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import onnx
import safetensors.numpy
from safetensors import SafetensorError
from torch import nn

from pocketune.compiler.capture.dropout import supply_masks
from pocketune.compiler.capture.trace import check_norms, running_statistics, trained_parameters
from pocketune.compiler.check import check_engine
from pocketune.compiler.graphs import Graphs, build_features, build_graphs
from pocketune.compiler.manifest import describe, graph_spec
from pocketune.compiler.passes.blocked import block_depthwise, leave_large_plain
from pocketune.compiler.passes.recompute import recompute_from_parameters
from pocketune.compiler.passes.schedule import fused_peak, order_for_memory
from pocketune.compiler.quantize.calibration import Calibration
from pocketune.compiler.quantize.search import quantize_features
from pocketune.compiler.quantize.weights import store_as_int8
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.errors import PocketuneError, check_positive
from pocketune.files import writing
from pocketune.kit.kit import Kit
from pocketune.kit.manifest import Manifest, MaskSpec, Quantization
from pocketune.kit.names import BLOCKED_STEP, FEATURES, PARAMETERS, PREDICT, STEP
from pocketune.kit.writer import check_place, write_kit
from pocketune.layers import IntegerConv2d
from pocketune.methods.method import check_frozen_bits
from pocketune.networks import about
from pocketune.networks.anatomy.output import output_layer
from pocketune.networks.copies import copy_network
from pocketune.surgery import quantize_frozen
from pocketune.tasks import Task, default_task

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
) -> Kit:
    """Compile the training step of an adapted network into a kit.

    First the compiled step and PyTorch train for five steps side by side. A kit that disagrees
    is not written.

    Args:
        network: as `pocketune.adapt` returns it; it is not changed. Images are normalized as
            `about(network)` says; the default is the usual normalization for ImageNet.
        out: folder of the kit, or a file whose name ends in .zip. A kit there is replaced.
        batch: images of a training step; at least 2 where a norm uses batch statistics on
            maps of one pixel.
        size: height and width of the images, in pixels.
        task: what is learned, with the names of the network's outputs, such as
            `Classification(("cat", "dog"))`; by default the classification of "0", "1", ... The
            device trains for other classes too, with a new classifier.
        frozen_bits: 8 or 32 for the kernels of frozen convolutions; None leaves them as `adapt`
            made them.
        calibration: images of `size`, of the kind that the kit will see. With them, a frozen part
            in 8 bits computes in integers, faster and with smaller temporaries. Without them,
            only its weights are rounded. The manifest's `quantization` holds the error.

    Returns:
        The kit, opened.

    Raises:
        CompileError: the compiled step does not compute what PyTorch computes.
        PocketuneError: no parameter is trained, or the output layer is not; an argument is out
            of range; the forward pass cannot be traced; or an operator has no lowering rule.
    """
    _check_place(out)
    check_positive(batch=batch, size=size)
    network = _copy(network, batch)
    settings = CompileSettings(batch, size, _with_head(task, network, size))
    bits = _frozen_bits(network, frozen_bits, calibration, size)
    exact = None
    if bits == 8:
        exact = build_features(network, size) if calibration is not None else None
        quantize_frozen(network)
    masks = supply_masks(network, batch, size)
    graphs = build_graphs(network, settings, masks)
    rounded = _store_weights(graphs, calibrated=calibration is not None) if bits == 8 else 0
    memory = optimize(graphs, settings, masks)
    manifest = describe(
        network,
        graphs,
        settings,
        memory=memory,
        masks=masks,
        quantization=Quantization(activations=32) if rounded else None,
    )
    with (
        tempfile.TemporaryDirectory(prefix="pocketune-") as scratch,
        writing(scratch, SafetensorError, remedy=_NO_ROOM),
    ):
        files = _write_files(graphs, network, Path(scratch))
        kit = write_kit(Path(scratch) / "kit", manifest, files)
        check_engine(OnnxEngine(kit, kit.state()), network, settings, masks)
        if bits == 8 and graphs.features is not None and calibration is not None:
            features, cost = quantize_features(graphs.features, calibration, exact)
            onnx.save(features, files[FEATURES])
            manifest = _with_quantized_features(manifest, features, cost)
        return write_kit(out, manifest, files)


def _with_quantized_features(
    manifest: Manifest, features: onnx.ModelProto, cost: Quantization
) -> Manifest:
    peak, flops = fused_peak(features, {"N": 1}), manifest.graphs["features"].flops
    specs = {**manifest.graphs, "features": graph_spec(features, peak, flops)}
    return replace(manifest, graphs=specs, quantization=cost)


def _check_place(out: str | os.PathLike[str]) -> None:
    if not isinstance(out, (str, os.PathLike)):
        raise PocketuneError(f"out={out!r} must be a folder, or a file whose name ends in .zip")
    check_place(out)


def _copy(network: nn.Module, batch: int) -> nn.Module:
    """Check that a step can be compiled for a network; returns a copy on the CPU."""
    if not trained_parameters(network):
        raise PocketuneError("nothing in this network is trained; adapt it with a method first")
    if any(isinstance(module, IntegerConv2d) for module in network.modules()):
        raise PocketuneError(
            "the network was calibrated to compute in PyTorch; compile the adapted one, and give "
            "calibration= for a kit that computes in 8 bits"
        )
    check_norms(network)
    if batch == 1 and running_statistics(network):
        warnings.warn(
            "norms use batch statistics, and the batch holds one image; give a batch of 2 or "
            "more, or let norms use running statistics (mobiletl: batch_statistics=False)",
            stacklevel=3,
        )
    return copy_network(network).cpu()


def _frozen_bits(
    network: nn.Module, asked: int | None, calibration: Calibration | None, size: int
) -> int:
    """Bits of the frozen part; checks that the calibration images have the right size."""
    bits = about(network).frozen_bits if asked is None else asked
    check_frozen_bits(bits)
    if calibration is not None and calibration.images.shape[1:3] != (size, size):
        raise PocketuneError(
            f"the calibration images have shape {calibration.images.shape}; give them as "
            f"(N, {size}, {size}, 3), as the kit's size={size}"
        )
    return bits


def _with_head(task: Task | None, network: nn.Module, size: int) -> Task:
    """The task with the names of the parameters that are reinitialized for other classes."""
    path = output_layer(network, size)
    layer = network.get_submodule(path)
    head = (f"{path}.weight", f"{path}.bias")
    if not isinstance(layer, nn.Linear) or {*head} - {*trained_parameters(network)}:
        raise PocketuneError(
            f"the output layer {path} must be linear with a bias, and trained: the device "
            "reinitializes it for other classes"
        )
    task = task or default_task(layer.out_features)
    if len(task.classes) != layer.out_features:
        raise PocketuneError(
            f"the task has {len(task.classes)} {task.noun} and the network {layer.out_features} "
            f"outputs; create the network with classes={len(task.classes)}"
        )
    return replace(task, head=head)


def _store_weights(graphs: Graphs, *, calibrated: bool) -> int:
    """Store the graphs' rounded weights in 8 bits; returns how often they are read.

    A frozen part that is calibrated is quantized later, weights and activations together.
    """
    models = [graphs.step, graphs.predict]
    if graphs.features is not None and not calibrated:
        models.append(graphs.features)
    return sum(store_as_int8(model) for model in models)


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
            onnx.save(model, folder / name)
    tensors = {**trained_parameters(network), **running_statistics(network)}
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    (folder / PARAMETERS).write_bytes(safetensors.numpy.save(arrays))
    return {file.name: file for file in folder.iterdir()}


def optimize(
    graphs: Graphs, settings: CompileSettings, masks: Iterable[MaskSpec]
) -> dict[str, int]:
    """Recompute, reorder and rename nodes, in place; what the graphs compute stays the same.

    Args:
        graphs: as `build_graphs` makes them.
        settings: those of `build_graphs`.
        masks: the dropout masks, which the device draws for each step.

    Returns:
        Bytes that a run of each graph allocates at once, by the graph's name.
    """
    varying = frozenset({"images", "features", "labels", *(spec.name for spec in masks)})
    memory = {}
    for name, model, sizes in graphs.sized(settings):
        if name == "step":
            recompute_from_parameters(model, sizes, varying)
        memory[name] = order_for_memory(model, sizes)
        if name == "step":
            leave_large_plain(model, sizes)
    return memory
