"""Values of the ONNX graph as tensors, and what operators make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pocketune.deployment.tflite.flatbuffer import Scales, Tensor
from pocketune.errors import PocketuneError

LAST = (0, 2, 3, 1)
"""From (N, C, H, W) to (N, H, W, C)."""
FIRST = (0, 3, 1, 2)
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
"""Activations that an operator computes on the way, in the order of the schema."""


@dataclass(frozen=True, eq=False)
class Value:
    """The tensor of a value of the ONNX graph.

    Attributes:
        tensor: float32, or int8 or uint8 with scales.
        last: Whether a value (N, C, H, W) lies as (N, H, W, C).
    """

    tensor: Tensor
    last: bool = False

    @property
    def integers(self) -> bool:
        """Whether operators can compute with its integers."""
        return self.tensor.dtype == np.int8


@dataclass(frozen=True, eq=False)
class Result:
    """What an operator computes.

    Attributes:
        name: The value's name in ONNX.
        activation: What is applied on the way, one of `ACTIVATIONS`.
        scales: Those of the result's integers; None for float32.
    """

    name: str
    activation: str = "NONE"
    scales: Scales | None = None


def unsupported(node: onnx.NodeProto, how: str) -> PocketuneError:
    """The error of an operator that has no translation."""
    layer = node.name or node.output[0]
    return PocketuneError(
        f"the model has {node.op_type}{how} ({layer}), which the export for TensorFlow Lite does "
        "not translate: export it as ONNX"
    )


def readers_of(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """The nodes that read each value."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in set(node.input):
            readers.setdefault(name, []).append(node)
    return readers


def arrays_of(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """The constants of a graph."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def replace_nodes(
    graph: onnx.GraphProto, old: Sequence[onnx.NodeProto], new: Sequence[onnx.NodeProto]
) -> None:
    """Put nodes in the place of others, of which only the last one gives a value to the rest."""
    place = list(graph.node).index(old[-1])
    for offset, node in enumerate(new):
        graph.node.insert(place + offset, node)
    for node in old:
        graph.node.remove(node)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def along(numbers: NDArray[Any], axis: int, rank: int) -> NDArray[Any]:
    """One number for all, or one for each place along an axis, as it is broadcast to a value."""
    shape = [1] * rank
    if numbers.size > 1:
        shape[axis] = -1
    return numbers.reshape(shape)


def ordered(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its axes in this order."""
    return tuple(shape[axis] for axis in order)


def place(axis: int) -> int:
    """Where an axis of (N, C, H, W) is in (N, H, W, C)."""
    return LAST.index(axis)
