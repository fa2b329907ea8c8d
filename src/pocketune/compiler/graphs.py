"""The three ONNX graphs of a kit, from an adapted network."""

from dataclasses import dataclass

import onnx
import torch
from torch import fx, nn

from pocketune.compiler.builder import BOOL, FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.lower import Value, lower
from pocketune.compiler.lower.context import ROWS_MAX_PIXELS, Context
from pocketune.compiler.partition import features_node
from pocketune.compiler.trace import (
    Traced,
    running_statistics,
    trace_predict,
    trace_step,
    trained_parameters,
)

CLASSES = "classes"
_DTYPES = {torch.float32: FLOAT, torch.int64: INT64, torch.uint8: UINT8, torch.bool: BOOL}


@dataclass(frozen=True)
class Graphs:
    """The models of a kit; `features` is None where a method trains from the first layer on."""

    features: onnx.ModelProto | None
    step: onnx.ModelProto
    predict: onnx.ModelProto
    features_shape: tuple[int, ...] | None


def build_graphs(
    network: nn.Module,
    *,
    batch: int,
    size: int,
    label_smoothing: float,
    noise: list[str],
    output_layer: str,
) -> Graphs:
    """Trace and lower `network`, whose class scores come from the linear layer `output_layer`."""
    open_classes = {f"{output_layer}.weight", f"{output_layer}.bias"}
    step = trace_step(network, batch=batch, size=size, label_smoothing=label_smoothing, noise=noise)
    predict = trace_predict(network, batch=2, size=size)
    step_cut, predict_cut = features_node(step, size), features_node(predict, size)
    assert (step_cut is None) == (predict_cut is None)
    parameters = [*trained_parameters(network), *running_statistics(network)]
    features = None if predict_cut is None else _features(predict, predict_cut)
    return Graphs(
        features=features,
        step=_step(step, step_cut, [*parameters, *noise], open_classes),
        predict=_predict(predict, predict_cut, parameters, open_classes),
        features_shape=None if step_cut is None else tuple(step_cut.meta["val"].shape[1:]),
    )


def _features(traced: Traced, cut: fx.Node) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    _declare_images(builder, given, traced, "N")
    # the runtime has blocked layouts of its own for convolutions with constant kernels
    context = lower(builder, given, [cut], rows_max_pixels=0)
    _emit_outputs(context, [("features", cut)], set(), batch="N")
    return builder.model("features")


def _step(
    traced: Traced, cut: fx.Node | None, inputs: list[str], open_classes: set[str]
) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    batch = traced.placeholders["images"].meta["val"].shape[0]
    _declare_source(builder, given, traced, cut, batch)
    _declare(builder, given, traced, ["labels", *inputs], open_classes)
    wanted = [node for _, node in traced.outputs]
    context = lower(builder, given, wanted, rows_max_pixels=ROWS_MAX_PIXELS)
    _emit_outputs(context, traced.outputs, {f"grad.{n}" for n in open_classes})
    for name, node in traced.placeholders.items():
        if node in context.statistics:
            shape = list(node.meta["val"].shape)
            builder.emit(context.statistics[node], f"new.{name}", FLOAT, shape)
    return builder.model("step")


def _predict(
    traced: Traced, cut: fx.Node | None, inputs: list[str], open_classes: set[str]
) -> onnx.ModelProto:
    builder = GraphBuilder()
    given = _constants(traced)
    _declare_source(builder, given, traced, cut, "N")
    _declare(builder, given, traced, inputs, open_classes)
    wanted = [node for _, node in traced.outputs]
    context = lower(builder, given, wanted, rows_max_pixels=ROWS_MAX_PIXELS)
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
    cut: fx.Node | None,
    batch: int | str,
) -> None:
    """The graph starts from the features, or from the images where there are none."""
    if cut is None:
        _declare_images(builder, given, traced, batch)
        return
    shape = tuple(cut.meta["val"].shape)
    given[cut] = Value(shape, plain=builder.input("features", FLOAT, [batch, *shape[1:]]))


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
