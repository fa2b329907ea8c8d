"""Parts of a value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from pocketune.deployment.tflite.flatbuffer import Tensor
from pocketune.deployment.tflite.translator import Translator, translates
from pocketune.deployment.tflite.values import Value, attributes, unsupported


@translates("Gather")
def gather(t: Translator, node: onnx.NodeProto) -> None:
    """The places along an axis that a constant names."""
    if not t.is_constant(node.input[1]):
        raise unsupported(node, " of places that are not constant")
    x = t.plain(t.value(node.input[0])).tensor
    axis = attributes(node).get("axis", 0) % len(x.shape)
    places = t.array(node.input[1]) % x.shape[axis]
    y = Tensor(node.output[0], t.shape(node.output[0]), x.dtype, x.scales)
    inputs = [x, t.constant("places", places.astype(np.int32))]
    t.graph.add("GATHER", inputs, y, options="GatherOptions", axis=axis)
    t.put(node.output[0], Value(y))


@translates("Split")
def split(t: Translator, node: onnx.NodeProto) -> None:
    """Neighboring parts along an axis, each by an operator of its own."""
    x = t.plain(t.value(node.input[0])).tensor
    axis = attributes(node).get("axis", 0) % len(x.shape)
    start = 0
    for name in node.output:
        begin = [start if place == axis else 0 for place in range(len(x.shape))]
        start += t.shape(name)[axis]
        _slice(t, x, name, begin)


@translates("Slice")
def slice_(t: Translator, node: onnx.NodeProto) -> None:
    """A part without gaps."""
    if not all(t.is_constant(name) for name in node.input[1:] if name):
        raise unsupported(node, " of places that are not constant")
    x = t.plain(t.value(node.input[0])).tensor
    axes_name, steps_name = [*node.input[3:], "", ""][:2]
    starts, ends = t.array(node.input[1]), t.array(node.input[2])
    axes = t.array(axes_name) if axes_name else range(len(starts))
    if steps_name and (t.array(steps_name) != 1).any():
        raise unsupported(node, " with steps")
    begin = [0] * len(x.shape)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        begin[axis] = slice(int(start), int(end)).indices(x.shape[axis])[0]
    _slice(t, x, node.output[0], begin)


def _slice(t: Translator, x: Tensor, name: str, begin: Sequence[int]) -> None:
    y = Tensor(name, t.shape(name), x.dtype, x.scales)
    inputs = [x, t.integer_list("begin", begin), t.integer_list("size", y.shape)]
    t.put(name, Value(t.graph.add("SLICE", inputs, y, options="SliceOptions")))
