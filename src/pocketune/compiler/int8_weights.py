"""Frozen weights as int8 with a scale per channel, and a DequantizeLinear where they are read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_READERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FEWEST = 256
"""Elements of a weight that is worth it; smaller ones are biases and the like."""

LOSSLESS = 1e-5
"""Error, as a share of the largest weight, up to which a weight counts as rounded already."""


def store_as_int8(model: onnx.ModelProto, *, only_rounded: bool) -> None:
    """Store constant weights as int8, in place.

    Each reader gets a DequantizeLinear of its own right before it, so that no float copy lives
    longer than its reader.

    Args:
        model: any graph; its weights are initializers in float32.
        only_rounded: leave weights as they are unless they have been rounded to 8 bits per
            channel before. Whatever scale per channel was folded into them since, they still
            are whole multiples of a scale, and nothing is lost.
    """
    graph = model.graph
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    stored = _Stored()
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for place, name in _weights(node, weights):
            rounded = round_per_channel(weights[name], lossless=only_rounded)
            if rounded is not None:
                nodes.append(stored.add(node, place, rounded))
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *stored.initializers()])
    onnx.checker.check_model(model)


Rounded = tuple[NDArray[np.int8], NDArray[np.float32], int]
"""Whole numbers, the scale of each channel, and the axis of the channels."""


def round_per_channel(weight: NDArray[np.float32], *, lossless: bool) -> Rounded | None:
    """`weight` as int8 in [-127, 127] times a scale for each output channel, along axis 0.

    With `lossless` a weight that this would change by more than `LOSSLESS` is tried along axis 1,
    where a transposed kernel has its channels, and then given up.
    """
    error, rounded = _round(weight, 0)
    if not lossless:
        return rounded
    bound = LOSSLESS * float(np.abs(weight).max(initial=0))
    if error > bound:
        error, rounded = _round(weight, 1)
    return rounded if error <= bound else None


def _round(weight: NDArray[np.float32], axis: int) -> tuple[float, Rounded]:
    others = tuple(i for i in range(weight.ndim) if i != axis)
    scale = np.abs(weight).max(axis=others, keepdims=True) / np.float32(127)
    scale[scale == 0] = 1
    whole = np.rint(weight / scale).astype(np.int8)
    error = float(np.abs(whole * scale - weight).max(initial=0))
    return error, (whole, scale.ravel().astype(np.float32), axis)


class _Stored:
    """The new initializers, equal ones once."""

    def __init__(self) -> None:
        self._names: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._tensors: list[onnx.TensorProto] = []

    def add(self, reader: onnx.NodeProto, place: int, rounded: Rounded) -> onnx.NodeProto:
        """The node that gives `reader` its input number `place` from now on."""
        whole, scale, axis = rounded
        inputs = [self._initializer(whole), self._initializer(scale)]
        output = f"{reader.output[0]}.weight{place}"
        reader.input[place] = output
        return helper.make_node("DequantizeLinear", inputs, [output], name=output, axis=axis)

    def initializers(self) -> list[onnx.TensorProto]:
        """All of them."""
        return self._tensors

    def _initializer(self, values: NDArray[np.generic]) -> str:
        key = (values.tobytes(), values.dtype.str, values.shape)
        if key not in self._names:
            self._names[key] = f"{values.dtype}.{len(self._names)}"
            self._tensors.append(numpy_helper.from_array(values, self._names[key]))
        return self._names[key]


def _weights(
    node: onnx.NodeProto, constants: dict[str, NDArray[np.generic]]
) -> Iterator[tuple[int, str]]:
    """Places and names of the constants that a node computes with as its weights."""
    if node.op_type not in _READERS:
        return
    for place, name in enumerate(node.input[:2]):
        value = constants.get(name)
        if value is None or value.dtype != np.float32 or value.ndim < 2:
            continue
        if value.size >= _FEWEST:
            yield place, name
