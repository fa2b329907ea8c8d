"""The three ONNX graphs of a kit, from an adapted network."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
import onnx
import torch
from torch import Tensor, fx, nn

from pocketune.compiler.builder import BOOL, FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.capture.partition import ancestors, features_nodes, tensor_shape
from pocketune.compiler.capture.trace import (
    Traced,
    running_statistics,
    trace_predict,
    trace_step,
    trained_parameters,
)
from pocketune.compiler.lower import Value, lower
from pocketune.compiler.lower.context import ROWS_MAX_PIXELS, Context
from pocketune.compiler.lower.mask import LEAST_PACKED, has_masks
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.device.memory.estimate import ARENA_OVERHEAD, NODE_BYTES
from pocketune.errors import PocketuneError

CLASSES = "classes"
Sizes = Mapping[str, int]
_DTYPES = {torch.float32: FLOAT, torch.int64: INT64, torch.uint8: UINT8, torch.bool: BOOL}


@dataclass(frozen=True)
class Graphs:
    """The models of a kit; `features` is None where a method trains from the first layer on."""

    features: onnx.ModelProto | None
    step: onnx.ModelProto
    predict: onnx.ModelProto
    features_shape: tuple[int, ...] | None

    def sized(self, batch: int, classes: int) -> Iterator[tuple[str, onnx.ModelProto, Sizes]]:
        """Name, model and the sizes of its open dimensions; frozen parts run image by image."""
        if self.features is not None:
            yield "features", self.features, {"N": 1, CLASSES: classes}
        yield "step", self.step, {"N": batch, CLASSES: classes}
        yield "predict", self.predict, {"N": batch, CLASSES: classes}


def build_graphs(
    network: nn.Module,
    *,
    batch: int,
    size: int,
    label_smoothing: float,
    noise: list[str],
    output_layer: str,
    attributes: int | None = None,
) -> Graphs:
    """Trace and lower `network`, whose class scores come from the linear layer `output_layer`.

    `attributes` is their number; None where an image has one class.

    Raises:
        PocketuneError: an operator draws random numbers, the frozen part has a dropout, or an
            operator has no rule.
    """
    open_classes = {f"{output_layer}.weight", f"{output_layer}.bias"}
    step = trace_step(
        network,
        batch=batch,
        size=size,
        label_smoothing=label_smoothing,
        noise=noise,
        attributes=attributes,
    )
    _refuse_random_numbers(step)
    predict = trace_predict(network, batch=2, size=size)
    step_cut, predict_cut = features_nodes(step, size), features_nodes(predict, size)
    if _convolutions(step_cut) != _convolutions(predict_cut):
        raise PocketuneError(
            f"the frozen part of {type(network).__name__} computes in training what it does not "
            "in evaluation, as a dropout in a frozen block does; take it out before adapting"
        )
    shapes = [tensor_shape(node) for node in step_cut]
    trained = trained_parameters(network)
    parameters = [*trained, *running_statistics(network)]
    rows = _rows_max_pixels(step.graph, trained.values())
    features = _features(predict, predict_cut) if predict_cut else None
    return Graphs(
        features=features,
        step=_step(step, step_cut, [*parameters, *noise], open_classes, rows),
        predict=_predict(predict, predict_cut, parameters, open_classes, rows),
        features_shape=_features_shape(shapes) if shapes else None,
    )


def _convolutions(cut: tuple[fx.Node, ...]) -> int:
    """How many convolutions the frozen part has, if it ends with these nodes."""
    convolution = torch.ops.aten.convolution.default
    return sum(node.target is convolution for node in ancestors(cut))


def _refuse_random_numbers(step: Traced) -> None:
    """They would be drawn once, while compiling, and stay the same in every step."""
    for node in ancestors(node for _, node in step.outputs):
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise PocketuneError(
                f"{node.target} draws random numbers, which a kit's graphs cannot do; use "
                "nn.Dropout, whose mask the device draws"
            )


def build_features(network: nn.Module, size: int) -> onnx.ModelProto | None:
    """The frozen part alone, as `build_graphs` makes it."""
    traced = trace_predict(network, batch=2, size=size)
    cut = features_nodes(traced, size)
    return _features(traced, cut) if cut else None


def _rows_max_pixels(graph: fx.Graph, trained: Iterable[Tensor]) -> int:
    """Rows serve gradients of kernels and sums over a channel, where there are any.

    A group norm wants maps as they are, and frozen kernels do as well as maps: there the
    transposes around depthwise convolutions cost more than rows gain, in time and in nodes.
    """
    if any(node.target is torch.ops.aten.native_group_norm.default for node in graph.nodes):
        return 0
    return ROWS_MAX_PIXELS if any(tensor.dim() == 4 for tensor in trained) else 0


def _features_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """One tensor goes as it is; several go end to end, as one vector."""
    return shapes[0] if len(shapes) == 1 else (sum(map(prod, shapes)),)


def _features(traced: Traced, cut: tuple[fx.Node, ...]) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    _declare_images(builder, given, traced, "N")
    # the runtime has blocked layouts of its own for convolutions with constant kernels
    context = lower(builder, given, cut, rows_max_pixels=0)
    parts = [context.plain(context.value(node)) for node in cut]
    shapes = [tensor_shape(node) for node in cut]
    if len(parts) > 1:
        flat = [context.reshape(p, -1, prod(s)) for p, s in zip(parts, shapes, strict=True)]
        parts = [builder.add("Concat", *flat, axis=1)]
    builder.emit(parts[0], "features", FLOAT, ["N", *_features_shape(shapes)])
    return builder.model("features")


def _step(
    traced: Traced,
    cut: tuple[fx.Node, ...],
    inputs: list[str],
    open_classes: set[str],
    rows_max_pixels: int,
) -> onnx.ModelProto:
    """With masks kept as bytes, or large ones as bits: the way that needs less memory."""
    forms = (inf, LEAST_PACKED) if has_masks(traced.graph) else (inf,)
    models = [
        _lower_step(traced, cut, inputs, open_classes, rows_max_pixels, least_packed=form)
        for form in forms
    ]
    if len(models) == 1:
        return models[0]
    classes = max(traced.placeholders[name].meta["val"].shape[0] for name in open_classes)

    def memory(model: onnx.ModelProto) -> float:
        tensors = ARENA_OVERHEAD * order_for_memory(model, {CLASSES: classes})
        return tensors + NODE_BYTES * len(model.graph.node)

    return min(models, key=memory)


def _lower_step(
    traced: Traced,
    cut: tuple[fx.Node, ...],
    inputs: list[str],
    open_classes: set[str],
    rows_max_pixels: int,
    *,
    least_packed: float,
) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    batch = traced.placeholders["images"].meta["val"].shape[0]
    _declare_source(builder, given, traced, cut, batch)
    _declare(builder, given, traced, ["labels", *inputs], open_classes)
    wanted = [node for _, node in traced.outputs]
    context = lower(
        builder, given, wanted, rows_max_pixels=rows_max_pixels, least_packed=least_packed
    )
    _emit_outputs(context, traced.outputs, {f"grad.{n}" for n in open_classes})
    for name, node in traced.placeholders.items():
        if node in context.statistics:
            shape = list(node.meta["val"].shape)
            builder.emit(context.statistics[node], f"new.{name}", FLOAT, shape)
    return builder.model("step")


def _predict(
    traced: Traced,
    cut: tuple[fx.Node, ...],
    inputs: list[str],
    open_classes: set[str],
    rows_max_pixels: int,
) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    _declare_source(builder, given, traced, cut, "N")
    _declare(builder, given, traced, inputs, open_classes)
    wanted = [node for _, node in traced.outputs]
    context = lower(builder, given, wanted, rows_max_pixels=rows_max_pixels)
    _emit_outputs(context, traced.outputs, set(), batch="N", classes=True)
    return builder.model("predict")


def _constants(traced: Traced) -> dict[fx.Node, Value]:
    given = {
        traced.placeholders[name]: Value(tuple(t.shape), constant=t)
        for name, t in traced.constants.items()
    }
    for node in traced.graph.nodes:
        if node.op == "get_attr":
            tensor = node.meta["constant"]
            given[node] = Value(tuple(tensor.shape), constant=tensor)
    return given


def _declare_source(
    builder: GraphBuilder,
    given: dict[fx.Node, Value],
    traced: Traced,
    cut: tuple[fx.Node, ...],
    batch: int | str,
) -> None:
    """The graph starts from the features, or from the images where there are none."""
    if not cut:
        _declare_images(builder, given, traced, batch)
        return
    shapes = [tensor_shape(node) for node in cut]
    parts = [builder.input("features", FLOAT, [batch, *_features_shape(shapes)])]
    if len(cut) > 1:
        sizes = builder.constant(np.array([prod(shape) for shape in shapes]))
        parts = builder.add_many("Split", [parts[0], sizes], len(cut), axis=1)
        context = Context(builder)
        parts = [context.reshape(p, -1, *s) for p, s in zip(parts, shapes, strict=True)]
    for node, part in zip(cut, parts, strict=True):
        given[node] = Value(tuple(node.meta["val"].shape), plain=part)


def _declare_images(
    builder: GraphBuilder, given: dict[fx.Node, Value], traced: Traced, batch: int | str
) -> None:
    node = traced.placeholders["images"]
    shape = tuple(node.meta["val"].shape)
    given[node] = Value(shape, plain=builder.input("images", UINT8, [batch, *shape[1:]]))


def _declare(
    builder: GraphBuilder,
    given: dict[fx.Node, Value],
    traced: Traced,
    names: list[str],
    open_classes: set[str],
) -> None:
    for name in names:
        node = traced.placeholders[name]
        tensor = node.meta["val"]
        shape: list[int | str] = list(tensor.shape)
        if name in open_classes:
            shape[0] = CLASSES
        if name == "labels" and len(shape) == 2:
            shape[1] = CLASSES
        given[node] = Value(
            tuple(tensor.shape), plain=builder.input(name, _DTYPES[tensor.dtype], shape)
        )


def _emit_outputs(
    context: Context,
    outputs: list[tuple[str, fx.Node]],
    open_classes: set[str],
    batch: int | str | None = None,
    classes: bool = False,
) -> None:
    """Name the results as the kit does and declare them."""
    builder = context.builder
    results = [(name, context.plain(context.value(node)), node) for name, node in outputs]
    for name, tensor, node in results:
        shape: list[int | str] = list(node.meta["val"].shape)
        if batch is not None:
            shape[0] = batch
        if name in open_classes:
            shape[0] = CLASSES
        if classes:
            shape[1] = CLASSES
        builder.emit(tensor, name, _DTYPES[node.meta["val"].dtype], shape)
