"""The masks of `pocketune.layers.bits` and `slopes`, the first kept as bytes or packed to bits.

A packed mask takes an eighth of the memory between the passes, more while it is unpacked, and more
nodes, so the compiler lowers a step both ways and takes the one that needs less memory.
"""

from math import inf, prod

import numpy as np
import torch
from onnx import TensorProto
from torch import fx

import pocketune.filtering.pooled  # noqa: F401 - registers its operators
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Mask, Value
from pocketune.compiler.passes.program import shape_of

ops = torch.ops.pocketune

_PLACES = (1 << np.arange(8)).astype(np.uint8)  # of element i of eight: the lowest bit first
_UNPACKED = (np.arange(256)[:, None] & _PLACES > 0).astype(np.float32)


LEAST_PACKED = 1 << 15
"""Elements of a mask from which on packing saves more than the five or six nodes that it takes."""


def has_masks(graph: fx.Graph) -> bool:
    """Whether a traced graph keeps masks for its backward pass."""
    return any(node.target is ops.mask_gradient.default for node in graph.nodes)


@lowers(ops.pack_nonnegative.default)
def _pack_nonnegative(context: Context, node: fx.Node, x: Value, channels_last: bool) -> Value:
    return _keep(context, node, elementwise(context, "GreaterOrEqual", [x, 0.0], x.shape))


@lowers(ops.pack_between.default)
def _pack_between(
    context: Context, node: fx.Node, x: Value, low: float, high: float, channels_last: bool
) -> Value:
    return _keep(context, node, _between(context, x, low, high))


@lowers(ops.slope_nonnegative.default)
def _slope_nonnegative(context: Context, node: fx.Node, x: Value) -> Value:
    return _as_float(context, elementwise(context, "GreaterOrEqual", [x, 0.0], x.shape))


@lowers(ops.slope_between.default)
def _slope_between(context: Context, node: fx.Node, x: Value, low: float, high: float) -> Value:
    return _as_float(context, _between(context, x, low, high))


def _between(context: Context, x: Value, low: float, high: float) -> Value:
    mask = elementwise(context, "Greater", [x, low], x.shape)
    if high == inf:
        return mask
    below = elementwise(context, "Less", [x, high], x.shape)
    return elementwise(context, "And", [mask, below], x.shape)


def _as_float(context: Context, mask: Value) -> Value:
    return elementwise(context, "Cast", [mask], mask.shape, to=TensorProto.FLOAT)


@lowers(ops.mask_gradient.default)
def _mask_gradient(
    context: Context, node: fx.Node, g: Value, packed: Value, channels_last: bool
) -> Value:
    mask = packed.saved
    assert isinstance(mask, Mask)
    # a product takes the mask as floats, one more tensor of that size; Where takes two, and twice
    # as long
    factor = _unpack(context, mask) if mask.packed else _as_float(context, mask.value)
    return elementwise(context, "Mul", [g, factor], g.shape)


def _keep(context: Context, node: fx.Node, mask: Value) -> Value:
    """The order of the elements is the graph's own, whatever PyTorch's was."""
    packed = _pack(context, mask) if prod(mask.shape) >= context.least_packed else None
    return Value(shape_of(node), saved=Mask(mask, packed))


def _pack(context: Context, mask: Value) -> str:
    """(bytes, 1): a product with the places' values is several times as fast as shifts.

    Of two dimensions, since ONNX's shape inference takes a vector of integers for a shape.
    """
    b, count = context.builder, prod(mask.shape)
    name = mask.rows if context.in_rows(mask) else context.plain(mask)
    assert name is not None
    numbers = b.add("Cast", name, to=TensorProto.UINT8)
    if count % 8:
        fill = b.constant(np.zeros(-count % 8, np.uint8))
        numbers = b.add("Concat", context.reshape(numbers, -1), fill, axis=0)
    total = b.add("MatMulInteger", context.reshape(numbers, -1, 8), b.constant(_PLACES[:, None]))
    return b.add("Cast", total, to=TensorProto.UINT8, hint="bits")


def _unpack(context: Context, mask: Mask) -> Value:
    """Zeros and ones, in the layout that the mask had."""
    assert mask.packed is not None
    b, value = context.builder, mask.value
    index = b.add("Cast", mask.packed, to=TensorProto.INT32)
    bits = b.add("Gather", b.constant(_UNPACKED), index, axis=0)
    count = prod(value.shape)
    if count % 8:
        bounds = [b.constant(np.array([bound])) for bound in (0, count)]
        bits = b.add("Slice", context.reshape(bits, -1), *bounds)
    if context.in_rows(value):
        return Value(value.shape, rows=context.reshape(bits, -1, value.shape[1]))
    return Value(value.shape, plain=context.reshape(bits, *value.shape))
