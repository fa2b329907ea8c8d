"""Means, and values in another order or side by side."""

from __future__ import annotations

from typing import Any

import onnx

from pocketune.deployment.tflite.flatbuffer import Scales, Tensor
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import (
    FIRST,
    LAST,
    Value,
    attributes,
    ordered,
    place,
)


@translates("ReduceMean", "GlobalAveragePool")
def mean(t: Translator, node: onnx.NodeProto) -> None:
    """Averages over axes, such as all pixels."""
    given, rank = attributes(node), len(t.shape(node.input[0]))
    keep = bool(given.get("keepdims", 1))
    axes = [axis % rank for axis in _axes(t, node, given, rank)]
    x, result = t.read(node)
    if x.last and not keep and axes not in ([2, 3], [1]):
        x = t.plain(x)
    shape = t.shape(node.output[0])
    places = sorted(map(place, axes)) if x.last else axes
    t.emit(
        "MEAN",
        [x.tensor, t.integer_list("axes", places)],
        result,
        ordered(shape, LAST) if x.last and keep else shape,
        last=x.last and keep,
        options="ReducerOptions",
        keepDims=keep,
    )


def _axes(t: Translator, node: onnx.NodeProto, given: dict[str, Any], rank: int) -> list[int]:
    if node.op_type == "GlobalAveragePool":
        return list(range(2, rank))
    if len(node.input) > 1 and node.input[1]:
        return [int(axis) for axis in t.array(node.input[1])]
    return list(given.get("axes", range(rank)))


@translates("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(t: Translator, node: onnx.NodeProto) -> None:
    """The same numbers in another shape."""
    x = t.plain(t.value(node.input[0]))
    shape = t.shape(node.output[0])
    y = Tensor(node.output[0], shape, x.tensor.dtype, x.tensor.scales)
    t.put(node.output[0], Value(t.reshaped(x.tensor, y)))


@translates("Transpose")
def transpose(t: Translator, node: onnx.NodeProto) -> None:
    """Another order of the axes; nothing is computed where it is that of channels first or last."""
    x = t.value(node.input[0])
    rank = len(t.shape(node.input[0]))
    order = tuple(attributes(node).get("perm", range(rank)[::-1]))
    if not x.last and order == FIRST:
        t.put(node.output[0], Value(x.tensor, last=True))
    elif x.last and order == LAST:
        t.put(node.output[0], Value(x.tensor))
    else:
        x = t.plain(x)
        shape = t.shape(node.output[0])
        y = Tensor(node.output[0], shape, x.tensor.dtype, x.tensor.scales)
        t.put(node.output[0], Value(t.transposed(x.tensor, y, order)))


@translates("Concat")
def concat(t: Translator, node: onnx.NodeProto) -> None:
    """Values side by side; the integers of all get the scales of the result."""
    values = [t.value(name) for name in node.input]
    result = t.result(node, integers=all(value.integers for value in values))
    values = [t.as_for(value, result) for value in values]
    shape = t.shape(node.output[0])
    last = any(value.last for value in values)
    axis = attributes(node)["axis"] % len(shape)
    tensors = [(t.last(value) if last else value).tensor for value in values]
    t.emit(
        "CONCATENATION",
        [_with_scales(t, tensor, result.scales) for tensor in tensors],
        result,
        ordered(shape, LAST) if last else shape,
        last=last,
        options="ConcatenationOptions",
        axis=place(axis) if last else axis,
    )


def _with_scales(t: Translator, tensor: Tensor, scales: Scales | None) -> Tensor:
    if scales is None or tensor.scales is None or tensor.scales.same(scales):
        return tensor
    other = Tensor(f"{tensor.name}/scaled", tensor.shape, tensor.dtype, scales)
    return t.graph.add("QUANTIZE", [tensor], other)
