"""Frozen weights as int8 with a scale per channel, dequantized where they are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pocketune.compiler.names import derived

_READERS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Transpose")
_FEWEST = 256
"""Elements of the smallest weight that is stored as int8; smaller ones are biases and scales."""

_LOSSLESS = 1e-6
"""Error, as a share of the largest weight, up to which a weight counts as rounded already."""


def store_as_int8(model: onnx.ModelProto) -> int:
    """Store those constant weights as int8 that `QuantizedConv2d` has rounded, in place.

    They are recognized by their values: they are whole multiples of a scale per channel, also after
    another scale was folded into them, so int8 represents them exactly. Each reader gets its own
    DequantizeLinear right before it, so no float copy outlives its reader.

    Returns:
        The number of these readers.
    """
    graph = model.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    stored = _Stored()
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for place, name in _weights(node, weights):
            rounded = as_int8(weights[name])
            if rounded is not None:
                nodes.append(stored.add(node, place, rounded))
        nodes.append(node)
    found = len(nodes) - len(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *stored.initializers()])
    onnx.checker.check_model(model)
    return found


Rounded = tuple[NDArray[np.int8], NDArray[np.float32], int]
"""Whole numbers, the scale of each channel, and the axis of the channels."""


def as_int8(weight: NDArray[np.float32]) -> Rounded | None:
    """`weight` as int8 in [-127, 127] times a scale per channel; None if it is not exactly that.

    The channels lie along axis 0, along axis 1 in a transposed kernel, or along the last one in a
    linear layer whose product is of batches.
    """
    bound = _LOSSLESS * float(np.abs(weight).max(initial=0))
    for axis in dict.fromkeys((0, 1, weight.ndim - 1)):
        error, rounded = _round(weight, axis)
        if error <= bound:
            return rounded
    return None


def _round(weight: NDArray[np.float32], axis: int) -> tuple[float, Rounded]:
    others = tuple(i for i in range(weight.ndim) if i != axis)
    scale = np.abs(weight).max(axis=others, keepdims=True) / np.float32(127)
    scale[scale == 0] = 1
    whole = np.rint(weight / scale).astype(np.int8)
    error = float(np.abs(whole * scale - weight).max(initial=0))
    return error, (whole, scale.ravel().astype(np.float32), axis)


class _Stored:
    """The new initializers, without duplicates."""

    def __init__(self) -> None:
        self._names: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._tensors: list[onnx.TensorProto] = []

    def add(self, reader: onnx.NodeProto, place: int, rounded: Rounded) -> onnx.NodeProto:
        """Store a weight; returns the node that dequantizes it as input `place` of `reader`."""
        whole, scale, axis = rounded
        inputs = [self._initializer(whole), self._initializer(scale)]
        output = derived(reader.output[0], f"weight{place}")
        reader.input[place] = output
        return helper.make_node("DequantizeLinear", inputs, [output], name=output, axis=axis)

    def initializers(self) -> list[onnx.TensorProto]:
        """All new initializers."""
        return self._tensors

    def _initializer(self, values: NDArray[np.generic]) -> str:
        key = (values.tobytes(), values.dtype.str, values.shape)
        if key not in self._names:
            self._names[key] = derived(str(values.dtype), str(len(self._names)))
            self._tensors.append(numpy_helper.from_array(values, self._names[key]))
        return self._names[key]


def _weights(
    node: onnx.NodeProto, constants: dict[str, NDArray[np.generic]]
) -> Iterator[tuple[int, str]]:
    """Input places and names of the constants that are a node's weights."""
    if node.op_type not in _READERS:
        return
    for place, name in enumerate(node.input[:2]):
        value = constants.get(name)
        if value is None or value.dtype != np.float32 or value.ndim < 2:
            continue
        if value.size >= _FEWEST and value.size > max(value.shape):  # no column of ones
            yield place, name
