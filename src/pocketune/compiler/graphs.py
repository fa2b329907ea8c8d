"""The three ONNX graphs of a kit, from an adapted network."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import onnx
import torch
from torch import Tensor, fx, nn

from pocketune.compiler.capture.partition import (
    ancestors,
    features_nodes,
    frozen_nodes,
    tensor_shape,
)
from pocketune.compiler.capture.random_numbers import RandomNumbersError
from pocketune.compiler.capture.trace import (
    Traced,
    running_statistics,
    trace_predict,
    trace_step,
    trained_parameters,
)
from pocketune.compiler.kit_graph import Cut, KitGraph, features_shape
from pocketune.compiler.lower.activation import LEAST_PACKED, has_masks
from pocketune.compiler.lower.context import ROWS_MAX_PIXELS
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.compiler.settings import CompileSettings
from pocketune.device.memory.graphs import NODE_BYTES
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.tasks import Task
from pocketune.tasks.base import CLASSES

Sizes = Mapping[str, int]

_OPEN = 11
"""Images in a trace for any number of them: hardly another dimension of a network is as large."""

aten = torch.ops.aten


@dataclass(frozen=True)
class Graphs:
    """The models of a kit; `features` is None where a method trains from the first layer."""

    features: onnx.ModelProto | None
    step: onnx.ModelProto
    predict: onnx.ModelProto
    features_shape: tuple[int, ...] | None
    embeddings: int | None

    def sized(self, settings: CompileSettings) -> Iterator[tuple[str, onnx.ModelProto, Sizes]]:
        """Name, model and sizes of its open dimensions; the frozen part runs image by image."""
        sizes = {"N": settings.batch, CLASSES: len(settings.task.classes)}
        if self.features is not None:
            yield "features", self.features, {**sizes, "N": 1}
        yield "step", self.step, sizes
        yield "predict", self.predict, sizes


def build_graphs(
    network: nn.Module,
    settings: CompileSettings,
    masks: Iterable[MaskSpec] = (),
) -> Graphs:
    """Trace and lower `network`.

    Raises:
        PocketuneError: An operator draws random numbers, the frozen part has a dropout, or an
            operator has no rule.
    """
    drawn = [spec.name for spec in masks]
    step = trace_step(network, settings, drawn)
    _refuse_random_numbers(step)
    layer = settings.task.output_layer
    predict = trace_predict(network, batch=_OPEN, size=settings.size, layer=layer)
    predict_cut = features_nodes(predict, settings.size)
    step_cut = features_nodes(step, settings.size, predict)
    if _computed(step_cut) != _computed(predict_cut):
        # PyTorch chooses some operators by the number of images, which the step fixes
        like_step = trace_predict(network, batch=settings.batch, size=settings.size, layer=layer)
        if _computed(step_cut) != _computed(features_nodes(like_step, settings.size, predict)):
            raise _varies_in_training(network, step, drawn)
    trained = trained_parameters(network)
    parameters = [*trained, *running_statistics(network)]
    given = [*settings.task.step_inputs(), *parameters, *drawn]
    rows = _rows_max_pixels(step.graph, trained.values())
    return Graphs(
        features=_features(predict, predict_cut) if predict_cut else None,
        step=_step(step, step_cut, given, settings.task, rows),
        predict=_predict(predict, predict_cut, parameters, settings.task, rows),
        features_shape=features_shape(step_cut) if step_cut else None,
        embeddings=_embeddings(predict),
    )


def _embeddings(predict: Traced) -> int | None:
    """Size of the embeddings, if the prediction gives them."""
    node = dict(predict.outputs).get("embeddings")
    return None if node is None else tensor_shape(node)[0]


def _computed(cut: Cut) -> Counter[object]:
    """How often each operator is in the frozen part, if it ends with these."""
    return Counter(node.target for node in ancestors(cut) if node.op == "call_function")


def _varies_in_training(network: nn.Module, step: Traced, drawn: Iterable[str]) -> PocketuneError:
    """The error for a frozen part of a training network; it names a dropout there, if any."""
    frozen = frozen_nodes(step)
    users = ((name, user) for name in drawn for user in step.placeholders[name].users)
    masks = (name for name, user in users if frozen.intersection(user.all_input_nodes))
    mask = next(masks, None)
    where = "" if mask is None else f", here {mask.removesuffix('.mask')}"
    return PocketuneError(
        f"the frozen part of {type(network).__name__} computes something else in training than in "
        f"evaluation, as a dropout in a frozen block does{where}; remove it before adapting"
    )


def _refuse_random_numbers(step: Traced) -> None:
    """Random numbers would be drawn once, while compiling, and be the same in every step."""
    for node in ancestors(node for _, node in step.outputs):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise RandomNumbersError(node.target, node.meta.get("module", ""))


def build_features(network: nn.Module, size: int) -> onnx.ModelProto | None:
    """The frozen part alone, as `build_graphs` makes it."""
    traced = trace_predict(network, batch=_OPEN, size=size)
    cut = features_nodes(traced, size)
    return _features(traced, cut) if cut else None


def _rows_max_pixels(graph: fx.Graph, trained: Iterable[Tensor]) -> int:
    """The largest map to keep as rows, which serve gradients of kernels and channel sums.

    A group norm reads maps in PyTorch's layout. Frozen kernels gain nothing from rows: the
    transposes around depthwise convolutions cost more than rows save, in time and in nodes.
    """
    if any(node.target is aten.native_group_norm.default for node in graph.nodes):
        return 0
    return ROWS_MAX_PIXELS if any(tensor.dim() == 4 for tensor in trained) else 0


def _features(traced: Traced, cut: Cut) -> onnx.ModelProto:
    graph = KitGraph(traced, "N")
    graph.declare_images()
    # the runtime computes convolutions with constant kernels in blocked layouts by itself
    context = graph.lower(cut, rows_max_pixels=0)
    graph.emit_features(context, cut)
    return graph.builder.model("features")


def _step(
    traced: Traced, cut: Cut, inputs: list[str], task: Task, rows_max_pixels: int
) -> onnx.ModelProto:
    """The step with its masks kept as bytes, or large ones as bits: what needs less memory."""

    def model(least_packed: float) -> onnx.ModelProto:
        return _lower_step(traced, cut, inputs, task, rows_max_pixels, least_packed)

    if not has_masks(traced.graph):
        return model(inf)
    classes = len(task.classes)

    def memory(model: onnx.ModelProto) -> float:
        arena = order_for_memory(model, tensor_bytes(model, {CLASSES: classes}))
        return arena + NODE_BYTES * len(model.graph.node)

    return min(map(model, (inf, LEAST_PACKED)), key=memory)


def _lower_step(
    traced: Traced,
    cut: Cut,
    inputs: list[str],
    task: Task,
    rows_max_pixels: int,
    least_packed: float,
) -> onnx.ModelProto:
    graph = KitGraph(traced, traced.placeholders["images"].meta["val"].shape[0], task)
    graph.declare_source(cut)
    graph.declare(["labels", *inputs])
    wanted = [node for _, node in traced.outputs]
    context = graph.lower(wanted, rows_max_pixels=rows_max_pixels, least_packed=least_packed)
    graph.emit_outputs(context)
    graph.emit_statistics(context)
    return graph.builder.model("step")


def _predict(
    traced: Traced, cut: Cut, inputs: list[str], task: Task, rows_max_pixels: int
) -> onnx.ModelProto:
    graph = KitGraph(traced, "N", task)
    graph.declare_source(cut)
    graph.declare(inputs)
    wanted = [node for _, node in traced.outputs]
    graph.emit_outputs(graph.lower(wanted, rows_max_pixels=rows_max_pixels))
    return graph.builder.model("predict")
