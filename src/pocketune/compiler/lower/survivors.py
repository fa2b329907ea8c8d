"""Pruned activations: thresholds, masks and the values of the survivors.

The values are selected by the mask in its own layout, and one zero is appended, so that their
positions follow from a running sum over the mask. In the backward pass the sum gives each element
the place of its value. The mask itself is kept as `lower.activation` keeps others.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from onnx import TensorProto
from torch import fx

import pocketune.layers.survivors  # noqa: F401 - registers its operators
from pocketune.compiler.lower.activation import keep_mask, kept_mask
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Mask, Value
from pocketune.compiler.passes.sizes import limit_elements

aten = torch.ops.aten
ops = torch.ops.pocketune

_EXACT = 1 << 24
"""Up to here, sums of ones are exact in float32."""


@lowers(ops.magnitude_threshold.default)
def _threshold(context: Context, node: fx.Node, x: Value, count: int) -> Value:
    """From the fewer elements, those below the threshold or those above it."""
    b, elements = context.builder, prod(x.shape[1:])
    if count == elements:
        return Value(x.shape[:1], constant=torch.full(x.shape[:1], -1.0))
    magnitude = elementwise(context, "Abs", [x])
    below = elements - count <= count
    k = b.constant([elements - count if below else count + 1])
    flat = context.reshape(context.at_hand(magnitude), x.shape[0], elements)
    found, _ = b.add_many("TopK", [flat, k], 2, axis=1, largest=int(not below), sorted=0)
    limit = b.add("ReduceMax" if below else "ReduceMin", found, b.constant([1]), keepdims=0)
    return Value(x.shape[:1], plain=limit)


@lowers(ops.pack_above.default)
def _pack_above(
    context: Context, node: fx.Node, x: Value, limit: Value, channels_last: bool
) -> Value:
    magnitude = elementwise(context, "Abs", [x])
    shape = (limit.shape[0], 1, 1, 1)
    each = Value(shape, plain=context.reshape(context.plain(limit), *shape))
    return keep_mask(context, node, elementwise(context, "Greater", [magnitude, each]))


@lowers(ops.zero_dropped.default)
def _zero_dropped(
    context: Context, node: fx.Node, x: Value, packed: Value, channels_last: bool
) -> Value:
    """With the mask at hand, and not as floats, which the backward pass would share and keep."""
    return elementwise(context, "Where", [_mask(packed).value, x, 0.0])


@lowers(ops.survivors.default)
def _survivors(
    context: Context, node: fx.Node, x: Value, packed: Value, count: int, channels_last: bool
) -> Value:
    b, mask = context.builder, _mask(packed).value
    flat = context.reshape(context.rows(x) if context.in_rows(mask) else context.plain(x), -1)
    condition = context.reshape(context.at_hand(mask), -1)
    selected = b.add("Compress", flat, condition, axis=0)
    limit_elements(b.nodes[-1], x.shape[0] * count)
    zero = b.constant(np.zeros(1, np.float32))
    values = b.add("Concat", selected, zero, axis=0, hint="survivors")
    return Value((x.shape[0] * count,), plain=values)


@lowers(ops.restore.default)
def _restore(
    context: Context,
    node: fx.Node,
    values: Value,
    packed: Value,
    shape: list[int],
    channels_last: bool,
) -> Value:
    """Each element takes the value whose place is the number of survivors before it."""
    b, ones = context.builder, kept_mask(context, packed)
    flat = context.reshape(context.at_hand(ones), -1)
    if prod(shape) > _EXACT:
        flat = b.add("Cast", flat, to=TensorProto.INT32)
    place = b.add("CumSum", flat, b.constant(0), exclusive=1)
    if prod(shape) <= _EXACT:
        place = b.add("Cast", place, to=TensorProto.INT32)
    spread = b.add("Gather", context.plain(values), place, axis=0)
    return elementwise(context, "Mul", [context.laid_out_as(ones, spread), ones])


def _mask(packed: Value) -> Mask:
    assert isinstance(packed.saved, Mask)
    return packed.saved
