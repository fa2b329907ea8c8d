"""What comes before a kit's files are written: the checked network, its graphs, its manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf

import onnx
from torch import nn

from pocketune.compiler.capture.dropout import supply_masks
from pocketune.compiler.capture.trace import check_norms, running_statistics, trained_parameters
from pocketune.compiler.collector import paused_collector
from pocketune.compiler.graphs import Graphs, build_features, build_graphs
from pocketune.compiler.manifest import describe
from pocketune.compiler.micro_batch import images_are_independent, micro_batch
from pocketune.compiler.passes.activations import read_originals, recompute_activations
from pocketune.compiler.passes.blocked import arena_in_blocks, leave_large_plain
from pocketune.compiler.passes.liveness import Liveness
from pocketune.compiler.passes.recompute import recompute_from_parameters
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.compiler.quantize.weights import store_as_int8
from pocketune.compiler.settings import CompileSettings
from pocketune.errors import PocketuneError, check_positive, warn
from pocketune.kit.manifest import MOST_ELEMENTS, Manifest, MaskSpec, Quantization
from pocketune.layers import IntegerConv2d
from pocketune.methods.method import check_frozen_bits
from pocketune.networks import about
from pocketune.networks.anatomy.output import find_output, only_layer
from pocketune.networks.checks import require_network, require_values
from pocketune.networks.copies import copy_network, gradients_on
from pocketune.surgery import quantize_frozen
from pocketune.surgery.freeze import batch_norms, freeze_batch_norms
from pocketune.tasks import Task, default_task

_WORTHWHILE = 0.9
"""More is recomputed if the step then needs less than this share of the memory."""


@dataclass(frozen=True)
class Prepared:
    """A step that is ready to be written as a kit.

    Attributes:
        network: A copy of the adapted network, on the CPU, with its frozen kernels rounded if they
            are stored in 8 bits.
        settings: What the step's graph is compiled for, the head included: its batch is the kit's
            micro-batch.
        masks: The dropout masks that the device draws.
        graphs: The optimized graphs; a frozen part that is to be calibrated is still in float32.
        manifest: Of these graphs, without files.
        calibrated: Whether the frozen part is to be quantized from images.
        exact: The frozen part before its kernels were rounded, where it is to be calibrated.
    """

    network: nn.Module
    settings: CompileSettings
    masks: tuple[MaskSpec, ...]
    graphs: Graphs
    manifest: Manifest
    calibrated: bool
    exact: onnx.ModelProto | None


@gradients_on()
@paused_collector()
def prepare(
    network: nn.Module,
    *,
    batch: int,
    size: int,
    task: Task | None = None,
    frozen_bits: int | None = None,
    calibrated: bool = False,
    compared: bool = True,
) -> Prepared:
    """Trace, lower and optimize the step of an adapted network.

    A step whose tensors are large computes its batch in parts, if the images do not affect one
    another.

    Args:
        network: As in `compile`; it is not changed.
        batch: Images of a training step.
        size: Height and width of the images, in pixels.
        task: What is learned.
        frozen_bits: 8 or 32 for the weights of frozen layers.
        calibrated: Whether images will calibrate a frozen part in 8 bits.
        compared: Whether to keep the frozen part from before its kernels are rounded, which
            measures the error of one that is calibrated.

    Raises:
        PocketuneError: As `compile`.
    """
    of_step = partial(
        _prepare,
        network,
        size=size,
        task=task,
        frozen_bits=frozen_bits,
        calibrated=calibrated,
        compared=compared,
    )
    whole = of_step(batch)
    part = micro_batch(whole.manifest)
    if part == batch or not images_are_independent(whole.network, whole.settings):
        return whole
    prepared = of_step(part)
    return replace(prepared, manifest=replace(prepared.manifest, batch=whole.settings.batch))


def _prepare(
    network: nn.Module,
    batch: int,
    *,
    size: int,
    task: Task | None,
    frozen_bits: int | None,
    calibrated: bool,
    compared: bool,
) -> Prepared:
    """The same with graphs that compute the batch at once."""
    check_positive(batch=batch, size=size)
    if 3 * batch * size * size > MOST_ELEMENTS:
        raise PocketuneError(
            f"a batch of {batch:,} images of {size:,} pixels is larger than any memory; give less"
        )
    network = _copy(network, batch)
    settings = CompileSettings(batch, size, _with_head(task, network, size))
    bits = about(network).frozen_bits if frozen_bits is None else frozen_bits
    check_frozen_bits(bits)
    calibrated = calibrated and bits == 8
    masks = supply_masks(network, batch, size)
    exact = build_features(network, size) if calibrated and compared else None
    if bits == 8:
        quantize_frozen(network)
    graphs = build_graphs(network, settings, masks)
    if _freeze_unread_norms(network, graphs):
        graphs = build_graphs(network, settings, masks)
    rounded = _store_weights(graphs, calibrated=calibrated) if bits == 8 else 0
    optimize(graphs, settings, masks)
    manifest = describe(
        network,
        graphs,
        settings,
        masks=masks,
        quantization=Quantization(activations=32) if rounded else None,
    )
    calibrated = calibrated and graphs.features is not None
    return Prepared(network, settings, masks, graphs, manifest, calibrated, exact)


_TAKEN = (
    *("images", "features", "labels", "class_weights"),
    *("loss", "logits", "embeddings", "correct", "pixels"),
)
"""Names of what the graphs take and give beside parameters."""


def _check_names(network: nn.Module) -> None:
    for name in dict(chain(network.named_parameters(), network.named_buffers())):
        if name in _TAKEN:
            raise PocketuneError(
                f"the network has a tensor named {name}, as has a kit's graph; give it another name"
            )


def _copy(network: nn.Module, batch: int) -> nn.Module:
    """Check that a step can be compiled for a network; returns a copy on the CPU."""
    require_network(network)
    if not trained_parameters(network):
        raise PocketuneError("nothing in this network is trained; adapt it with a method first")
    if any(isinstance(module, IntegerConv2d) for module in network.modules()):
        raise PocketuneError(
            "the network was calibrated to compute in PyTorch; compile the adapted one, and give "
            "calibration= for a kit that computes in 8 bits"
        )
    require_values(network)
    check_norms(network)
    _check_names(network)
    copied = copy_network(network).cpu()
    _freeze_lasting_norms(copied)
    if batch == 1 and running_statistics(copied):
        warn(
            "norms use batch statistics, and the batch holds one image; give a batch of 2 or "
            "more, or let norms use running statistics (mobiletl: batch_statistics=False)"
        )
    return copied


def _freeze_lasting_norms(network: nn.Module) -> None:
    """Freeze the norms that `train` leaves in evaluation, as some detectors and encoders do."""
    modes = [(module, module.training) for module in network.modules()]
    norms = batch_norms(network.train())
    freeze_batch_norms(network, keep=[name for name, norm in norms.items() if norm.training])
    for module, training in modes:
        module.training = training


def _freeze_unread_norms(network: nn.Module, graphs: Graphs) -> bool:
    """Freeze the norms that the step does not compute: the scores do not depend on them."""
    computed = {output.name for output in graphs.step.graph.output}
    norms = batch_norms(network)
    read = [name for name in norms if f"new.{name}.running_mean" in computed]
    freeze_batch_norms(network, keep=read)
    return len(read) < len(norms)


def _with_head(task: Task | None, network: nn.Module, size: int) -> Task:
    """The task with the names of the parameters that are reinitialized for other classes."""
    found = find_output(network, size)
    maps = len(found.shape) > 1  # of scores, which several convolutions may compute together
    paths = found.layers if maps and found.layers else (only_layer(network, found),)
    head = tuple(f"{path}.{name}" for path in paths for name in ("weight", "bias"))
    layers = [network.get_submodule(path) for path in paths]
    if not all(map(_is_output, layers)) or {*head} - {*trained_parameters(network)}:
        raise PocketuneError(
            f"the output layer {' and '.join(paths)} must be linear with a bias, and trained: the "
            "device reinitializes it for other classes"
        )
    (outputs, *_) = (len(network.get_parameter(name)) for name in head)
    task = task or default_task(outputs, dense=maps)
    if found.squashed and task.activation:
        raise PocketuneError(
            f"{type(network).__name__} ends in a {found.squashed}, and the loss and the "
            f"predictions have a {task.activation} of their own; let the network return the scores "
            "before it"
        )
    if len(task.classes) != outputs:
        raise PocketuneError(
            f"the task has {task.counted(len(task.classes))} and the network {outputs} "
            f"outputs; create the network with classes={len(task.classes)}"
        )
    return task.fitted(head, found.shape)


def _is_output(layer: nn.Module) -> bool:
    """Whether the first dimension of a layer's parameters is that of the classes."""
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)


def _store_weights(graphs: Graphs, *, calibrated: bool) -> int:
    """Store the graphs' rounded weights in 8 bits; returns how often they are read.

    A frozen part that is calibrated is quantized later, weights and activations together.
    """
    models = [graphs.step, graphs.predict]
    if graphs.features is not None and not calibrated:
        models.append(graphs.features)
    return sum(store_as_int8(model) for model in models)


def optimize(graphs: Graphs, settings: CompileSettings, masks: Iterable[MaskSpec]) -> None:
    """Recompute, reorder and rename nodes, in place; what the graphs compute stays the same.

    Args:
        graphs: As `build_graphs` makes them.
        settings: Those of `build_graphs`.
        masks: The dropout masks, which the device draws for each step.
    """
    varying = frozenset({"images", "features", "labels", *settings.task.step_inputs()})
    varying |= {spec.name for spec in masks}
    for name, model, sizes in graphs.sized(settings):
        if name != "step":
            order_for_memory(model, tensor_bytes(model, sizes))
            continue
        model.CopyFrom(_smallest(model, tensor_bytes(model, sizes), varying))


def _smallest(
    step: onnx.ModelProto, made: Mapping[str, int], varying: frozenset[str]
) -> onnx.ModelProto:
    """The step in a good order; it recomputes what makes the arena enough smaller, and no more."""
    best, smallest = step, inf
    tried: list[dict[str, str]] = []
    for activations, depthwise in ((False, False), (True, False), (True, True)):
        model, size = onnx.ModelProto(), dict(made)
        model.CopyFrom(step)
        copies = dict[str, str]()
        if activations:
            copies = recompute_activations(model, size, depthwise=depthwise)
        if copies in tried:
            continue
        tried.append(copies)
        recompute_from_parameters(model, size, varying)
        order_for_memory(model, size)
        if read_originals(model, copies):
            order_for_memory(model, size)
        leave_large_plain(model, size)
        arena = arena_in_blocks(model, Liveness.sized(model, size))
        if arena < _WORTHWHILE * smallest:
            best, smallest = model, arena
    return best
