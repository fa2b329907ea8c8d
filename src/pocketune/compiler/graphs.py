"""The three ONNX graphs of a kit, from an adapted network."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod

import onnx
import torch
from torch import Tensor, fx, nn

from pocketune.compiler.builder import BOOL, FLOAT, INT64, UINT8, GraphBuilder
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
from pocketune.compiler.lower import Images, Value, lower
from pocketune.compiler.lower.activation import LEAST_PACKED, has_masks
from pocketune.compiler.lower.context import ROWS_MAX_PIXELS, Context
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.compiler.settings import CompileSettings
from pocketune.device.memory.graphs import NODE_BYTES
from pocketune.errors import PocketuneError
from pocketune.kit.manifest import MaskSpec
from pocketune.tasks import Task
from pocketune.tasks.base import CLASSES, Dims

Sizes = Mapping[str, int]
Cut = tuple[fx.Node, ...]
"""The tensors that the trained part starts from; empty where it reads the images."""

_OPEN = 11
"""Images in a trace for any number of them: hardly another dimension of a network is as large."""

_DTYPES = {torch.float32: FLOAT, torch.int64: INT64, torch.uint8: UINT8, torch.bool: BOOL}
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
        features_shape=_features_shape(step_cut) if step_cut else None,
        embeddings=_embeddings(predict),
    )


def _embeddings(predict: Traced) -> int | None:
    """Size of the embeddings, if the prediction gives them."""
    node = dict(predict.outputs).get("embeddings")
    return None if node is None else tensor_shape(node)[0]


def _computed(cut: tuple[fx.Node, ...]) -> Counter[object]:
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


def _features_shape(cut: Cut) -> tuple[int, ...]:
    """A single tensor keeps its shape; several are concatenated into one vector."""
    shapes = [tensor_shape(node) for node in cut]
    return shapes[0] if len(shapes) == 1 else (sum(map(prod, shapes)),)


def _features(traced: Traced, cut: Cut) -> onnx.ModelProto:
    lowering = _Lowering(traced, "N")
    lowering.declare_images()
    # the runtime computes convolutions with constant kernels in blocked layouts by itself
    context = lowering.lower(cut, rows_max_pixels=0)
    parts = [context.plain(context.value(node)) for node in cut]
    if len(parts) > 1:
        sizes = [prod(tensor_shape(node)) for node in cut]
        flat = [context.reshape(part, -1, n) for part, n in zip(parts, sizes, strict=True)]
        parts = [context.builder.add("Concat", *flat, axis=1)]
    context.builder.emit(parts[0], "features", FLOAT, ["N", *_features_shape(cut)])
    return context.builder.model("features")


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
    lowering = _Lowering(traced, traced.placeholders["images"].meta["val"].shape[0], task)
    lowering.declare_source(cut)
    lowering.declare(["labels", *inputs])
    wanted = [node for _, node in traced.outputs]
    context = lowering.lower(wanted, rows_max_pixels=rows_max_pixels, least_packed=least_packed)
    lowering.emit_outputs(context)
    lowering.emit_statistics(context)
    return lowering.builder.model("step")


def _predict(
    traced: Traced, cut: Cut, inputs: list[str], task: Task, rows_max_pixels: int
) -> onnx.ModelProto:
    lowering = _Lowering(traced, "N", task)
    lowering.declare_source(cut)
    lowering.declare(inputs)
    wanted = [node for _, node in traced.outputs]
    lowering.emit_outputs(lowering.lower(wanted, rows_max_pixels=rows_max_pixels))
    return lowering.builder.model("predict")


class _Lowering:
    """One graph under construction: its inputs, the nodes lowered from them, its outputs.

    Args:
        traced: The traced function that the graph computes.
        batch: Number of images, or the name of the open dimension.
        task: Its number of classes stays open; None for a graph that does not depend on it.
    """

    def __init__(self, traced: Traced, batch: int | str, task: Task | None = None) -> None:
        self.builder = GraphBuilder()
        self._traced, self._batch = traced, batch
        self._open = _open_dimensions(task) if task is not None else {}
        self._given = _constants(traced)
        self._source: str | None = None

    def declare_source(self, cut: Cut) -> None:
        """Start the graph from the features, or from the images where there are none."""
        if not cut:
            self.declare_images()
            return
        shapes = [tensor_shape(node) for node in cut]
        features = self.builder.input("features", FLOAT, [self._batch, *_features_shape(cut)])
        self._source = features
        parts = [features]
        if len(cut) > 1:
            sizes = self.builder.constant([prod(shape) for shape in shapes])
            parts = self.builder.add_many("Split", [features, sizes], len(cut), axis=1)
            context = Context(self.builder)
            parts = [context.reshape(p, -1, *s) for p, s in zip(parts, shapes, strict=True)]
        for node, part in zip(cut, parts, strict=True):
            self._given[node] = Value(tuple(node.meta["val"].shape), plain=part)

    def declare_images(self) -> None:
        """Start the graph from the pixels."""
        node = self._traced.placeholders["images"]
        shape = tuple(node.meta["val"].shape)
        name = self.builder.input("images", UINT8, [self._batch, *shape[1:]])
        self._source = name
        self._given[node] = Value(shape, plain=name)

    def declare(self, names: Iterable[str]) -> None:
        """Make placeholders inputs of the graph, under their own names."""
        for name in names:
            node = self._traced.placeholders[name]
            tensor = node.meta["val"]
            shape = self._shape(name, tensor)
            declared = self.builder.input(name, _DTYPES[tensor.dtype], shape)
            self._given[node] = Value(
                tuple(tensor.shape), plain=declared, open=shape[:1] == [CLASSES]
            )

    def lower(
        self, wanted: Iterable[fx.Node], *, rows_max_pixels: int, least_packed: float = inf
    ) -> Context:
        """Add the nodes that compute the wanted ones."""
        traced = self._traced.placeholders["images"].meta["val"].shape[0]
        source = self._source if isinstance(self._batch, str) else None
        return lower(
            self.builder,
            self._given,
            wanted,
            rows_max_pixels=rows_max_pixels,
            least_packed=least_packed,
            images=Images(traced, source),
        )

    def emit_outputs(self, context: Context) -> None:
        """Declare the results as outputs, under the kit's names."""
        outputs = self._traced.outputs
        tensors = [context.plain(context.value(node)) for _, node in outputs]
        for (name, node), tensor in zip(outputs, tensors, strict=True):
            shape = self._shape(name, node.meta["val"])
            if name in ("logits", "embeddings"):
                shape[0] = self._batch
            self.builder.emit(tensor, name, _DTYPES[node.meta["val"].dtype], shape)

    def _shape(self, name: str, tensor: Tensor) -> list[int | str]:
        """The shape as traced, with an open number of classes."""
        dims = self._open.get(name, ())
        shape: list[int | str] = list(tensor.shape)
        for position, dim in enumerate(dims):
            if dim == CLASSES:
                shape[position] = CLASSES
        return shape

    def emit_statistics(self, context: Context) -> None:
        """Declare the new running statistics as outputs, named `new.` and the old name."""
        for name, node in self._traced.placeholders.items():
            if node in context.statistics:
                shape = list(node.meta["val"].shape)
                self.builder.emit(context.statistics[node], f"new.{name}", FLOAT, shape)


def _open_dimensions(task: Task) -> dict[str, Dims]:
    """Dimensions of the tensors that have one for the classes, by name."""
    head = dict.fromkeys((*task.head, *(f"grad.{name}" for name in task.head)), (CLASSES,))
    return {
        **head,
        "labels": ("N", *task.label_dims),
        "logits": ("N", *task.output_dims),
        **dict.fromkeys(task.step_inputs(), (CLASSES,)),
    }


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
