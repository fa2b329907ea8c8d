"""Activations, their gradients, and the masks that memory-efficient ones keep.

Only activations with an ONNX operator or in the networks of this package have rules here. The
others are traced as arithmetic; see `pocketune.compiler.capture.operators`.

Masks are those of `pocketune.layers.bits`, of `pocketune.layers.survivors` and of
`pocketune.filtering.pooled`. The first two are kept as bytes or packed to bits. A packed mask takes
an eighth of the memory between the passes, but more while it is unpacked, and more nodes. The
compiler therefore lowers a step both ways and keeps the graph that needs less memory.
"""

from math import inf, prod

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto
from torch import fx

import pocketune.filtering.pooled  # noqa: F401 - registers its operators
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Mask, Value
from pocketune.compiler.passes.program import shape_of

aten = torch.ops.aten


@lowers(aten.relu.default)
def _relu(context: Context, node: fx.Node, x: Value) -> Value:
    return elementwise(context, "Relu", [x])


@lowers(aten.hardtanh.default)
def _hardtanh(context: Context, node: fx.Node, x: Value, low: float = -1, high: float = 1) -> Value:
    return elementwise(context, "Clip", [x, low, high])


@lowers(aten.threshold_backward.default)
def _relu_backward(context: Context, node: fx.Node, g: Value, y: Value, low: float) -> Value:
    mask = elementwise(context, "Greater", [y, low])
    return _masked(context, g, mask)


@lowers(aten.hardtanh_backward.default)
def _hardtanh_backward(
    context: Context, node: fx.Node, g: Value, x: Value, low: float, high: float
) -> Value:
    inside = [
        elementwise(context, "Greater", [x, low]),
        elementwise(context, "Less", [x, high]),
    ]
    return _masked(context, g, elementwise(context, "And", inside))


def _masked(context: Context, g: Value, mask: Value) -> Value:
    """`g` where `mask` is true, 0 elsewhere: a product is twice as fast as Where."""
    factor = elementwise(context, "Cast", [mask], to=TensorProto.FLOAT)
    return elementwise(context, "Mul", [g, factor])


@lowers(aten.hardswish.default)
def _hardswish(context: Context, node: fx.Node, x: Value) -> Value:
    gate = _hard_gate(context, x)
    return elementwise(context, "Mul", [x, gate])


@lowers(aten.hardswish_backward.default)
def _hardswish_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    slope = elementwise(context, "Mul", [x, 1 / 3])
    slope = elementwise(context, "Add", [slope, 0.5])
    above = elementwise(context, "GreaterOrEqual", [x, 3.0])
    below = elementwise(context, "LessOrEqual", [x, -3.0])
    slope = elementwise(context, "Where", [above, 1.0, slope])
    slope = elementwise(context, "Where", [below, 0.0, slope])
    return elementwise(context, "Mul", [g, slope])


@lowers(aten.hardsigmoid.default)
def _hardsigmoid(context: Context, node: fx.Node, x: Value) -> Value:
    return _hard_gate(context, x)


@lowers(aten.hardsigmoid_backward.default)
def _hardsigmoid_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    inside = [
        elementwise(context, "Greater", [x, -3.0]),
        elementwise(context, "Less", [x, 3.0]),
    ]
    slope = elementwise(context, "Mul", [g, 1 / 6])
    return _masked(context, slope, elementwise(context, "And", inside))


def _hard_gate(context: Context, x: Value) -> Value:
    return elementwise(context, "HardSigmoid", [x], alpha=1 / 6, beta=0.5)


@lowers(aten.leaky_relu.default)
def _leaky_relu(context: Context, node: fx.Node, x: Value, slope: float = 0.01) -> Value:
    return elementwise(context, "LeakyRelu", [x], alpha=float(slope))


@lowers(aten._softmax.default)
def _softmax(context: Context, node: fx.Node, x: Value, dim: int, half: bool) -> Value:
    return Value(x.shape, plain=context.builder.add("Softmax", context.plain(x), axis=dim))


@lowers(aten._log_softmax.default)
def _log_softmax(context: Context, node: fx.Node, x: Value, dim: int, half: bool) -> Value:
    return Value(x.shape, plain=context.builder.add("LogSoftmax", context.plain(x), axis=dim))


ops = torch.ops.pocketune

_PLACES = (1 << np.arange(8)).astype(np.uint8)  # of element i of eight: the lowest bit first
_UNPACKED = (np.arange(256)[:, None] & _PLACES > 0).astype(np.float32)


LEAST_PACKED = 1 << 15
"""Elements of a mask from which packing saves more memory than its five or six nodes take."""


def has_masks(graph: fx.Graph) -> bool:
    """Whether a traced graph keeps masks for its backward pass."""
    readers = (
        ops.mask_gradient.default,
        ops.restore.default,
        ops.scale_by_slopes.default,
    )
    return any(node.target in readers for node in graph.nodes)


@lowers(ops.pack_nonnegative.default)
def _pack_nonnegative(context: Context, node: fx.Node, x: Value, channels_last: bool) -> Value:
    return keep_mask(context, node, elementwise(context, "GreaterOrEqual", [x, 0.0]))


@lowers(ops.pack_between.default)
def _pack_between(
    context: Context, node: fx.Node, x: Value, low: float, high: float, channels_last: bool
) -> Value:
    return keep_mask(context, node, _between(context, x, low, high))


@lowers(ops.slope_nonnegative.default)
def _slope_nonnegative(context: Context, node: fx.Node, x: Value) -> Value:
    return _as_float(context, elementwise(context, "GreaterOrEqual", [x, 0.0]))


@lowers(ops.slope_between.default)
def _slope_between(context: Context, node: fx.Node, x: Value, low: float, high: float) -> Value:
    return _as_float(context, _between(context, x, low, high))


def _between(context: Context, x: Value, low: float, high: float) -> Value:
    mask = elementwise(context, "Greater", [x, low])
    if high == inf:
        return mask
    below = elementwise(context, "Less", [x, high])
    return elementwise(context, "And", [mask, below])


def _as_float(context: Context, mask: Value) -> Value:
    return elementwise(context, "Cast", [mask], to=TensorProto.FLOAT)


@lowers(ops.mask_gradient.default)
def _mask_gradient(
    context: Context, node: fx.Node, g: Value, packed: Value, channels_last: bool
) -> Value:
    # a product needs the mask as floats, one more tensor of that size; Where needs two, and takes
    # twice as long
    return elementwise(context, "Mul", [g, kept_mask(context, packed)])


def kept_mask(context: Context, packed: Value) -> Value:
    """A mask in the backward pass, as zeros and ones in the layout that it had."""
    mask = packed.saved
    assert isinstance(mask, Mask)
    if mask.packed is None:
        return _as_float(context, mask.value)
    return unpacked(context, mask.packed, _UNPACKED, mask.value)


def keep_mask(context: Context, node: fx.Node, mask: Value) -> Value:
    """Keep a mask for the backward pass, with its elements in the order of the graph's layout."""
    packed = _pack(context, mask) if prod(mask.shape) >= context.least_packed else None
    return Value(shape_of(node), saved=Mask(mask, packed))


def _pack(context: Context, mask: Value) -> str:
    """The packed bits (bytes, 1), by a product with powers of two: much faster than shifts.

    They have two dimensions, since ONNX's shape inference takes a vector of integers for a shape.
    """
    b, count = context.builder, prod(mask.shape)
    numbers = b.add("Cast", context.at_hand(mask), to=TensorProto.UINT8)
    if count % 8:
        fill = b.constant(np.zeros(-count % 8, np.uint8))
        numbers = b.add("Concat", context.reshape(numbers, -1), fill, axis=0)
    total = b.add("MatMulInteger", context.reshape(numbers, -1, 8), b.constant(_PLACES[:, None]))
    return b.add("Cast", total, to=TensorProto.UINT8, hint="bits")


def unpacked(context: Context, packed: str, table: NDArray[np.float32], like: Value) -> Value:
    """The factors that packed bytes stand for, in the layout of `like`.

    Args:
        context: The lowering.
        packed: The bytes (bytes, 1).
        table: Factors (256, elements of a byte).
        like: What was packed.
    """
    b, count = context.builder, prod(like.shape)
    index = b.add("Cast", packed, to=TensorProto.INT32)
    factors = b.add("Gather", b.constant(table), index, axis=0)
    if count % table.shape[1]:
        bounds = [b.constant([bound]) for bound in (0, count)]
        factors = b.add("Slice", context.reshape(factors, -1), *bounds)
    return context.laid_out_as(like, factors)
