"""One ONNX graph of a kit under construction, with its open dimensions."""

from collections.abc import Iterable
from math import inf, prod

import torch
from torch import Tensor, fx

from pocketune.compiler.builder import BOOL, FLOAT, INT64, UINT8, GraphBuilder
from pocketune.compiler.capture.partition import tensor_shape
from pocketune.compiler.capture.trace import Traced
from pocketune.compiler.lower import Images, Value, lower
from pocketune.compiler.lower.context import Context
from pocketune.tasks import Task
from pocketune.tasks.base import CLASSES, Dims

Cut = tuple[fx.Node, ...]
"""The tensors that the trained part starts from; empty where it reads the images."""

_DTYPES = {torch.float32: FLOAT, torch.int64: INT64, torch.uint8: UINT8, torch.bool: BOOL}


def features_shape(cut: Cut) -> tuple[int, ...]:
    """Shape of the features of one image: that of a tensor, or a vector of several."""
    shapes = [tensor_shape(node) for node in cut]
    return shapes[0] if len(shapes) == 1 else (sum(map(prod, shapes)),)


class KitGraph:
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
        features = self.builder.input("features", FLOAT, [self._batch, *features_shape(cut)])
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

    def emit_features(self, context: Context, cut: Cut) -> None:
        """Declare what `declare_source` reads as the output."""
        parts = [context.plain(context.value(node)) for node in cut]
        if len(parts) > 1:
            sizes = [prod(tensor_shape(node)) for node in cut]
            flat = [context.reshape(part, -1, n) for part, n in zip(parts, sizes, strict=True)]
            parts = [self.builder.add("Concat", *flat, axis=1)]
        self.builder.emit(parts[0], "features", FLOAT, [self._batch, *features_shape(cut)])

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
