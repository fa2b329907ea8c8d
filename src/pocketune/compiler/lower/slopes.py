"""Derivatives in a few bits an element; see `pocketune.layers.slopes`.

`QuantizeLinear` rounds to the cells in one pass, exactly as PyTorch does, since their width is a
power of two. Codes of less than eight bits are packed where masks are; see
`pocketune.compiler.lower.activation`.
"""

from math import prod

import numpy as np
from onnx import TensorProto
from torch import fx, ops

from pocketune.compiler.lower.activation import unpacked
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Mask, Value
from pocketune.compiler.passes.program import shape_of
from pocketune.layers.slopes import ZERO, Slopes, slopes

_ops = ops.pocketune


@lowers(_ops.pack_slopes.default)
def _pack_slopes(
    context: Context, node: fx.Node, x: Value, activation: str, bits: int, channels_last: bool
) -> Value:
    b, table = context.builder, slopes(activation, bits)
    width, zero = b.constant(np.float32(table.step)), b.constant(np.uint8(ZERO))
    codes = b.add("QuantizeLinear", context.at_hand(x), width, zero)
    if bits < 8:  # eight bits are the cell itself
        index = b.add("Cast", codes, to=TensorProto.INT32)
        codes = b.add("Gather", b.constant(table.codes), index, axis=0)
    value = _of_layout(context, x, codes)
    packs = bits < 8 and prod(x.shape) >= context.least_packed
    return Value(
        shape_of(node), saved=Mask(value, _pack(context, codes, value, table) if packs else None)
    )


def _pack(context: Context, codes: str, value: Value, table: Slopes) -> str:
    """The packed codes (bytes, 1), by a product with powers of two."""
    b = context.builder
    if fill := -prod(value.shape) % table.in_byte:
        zeros = b.constant(np.zeros(fill, np.uint8))
        codes = b.add("Concat", context.reshape(codes, -1), zeros, axis=0)
    places = b.constant(table.places[:, None])
    total = b.add("MatMulInteger", context.reshape(codes, -1, table.in_byte), places)
    return b.add("Cast", total, to=TensorProto.UINT8, hint="bits")


@lowers(_ops.scale_by_slopes.default)
def _scale_by_slopes(
    context: Context,
    node: fx.Node,
    g: Value,
    packed: Value,
    activation: str,
    bits: int,
    channels_last: bool,
) -> Value:
    assert isinstance(packed.saved, Mask)
    factors = _unpack(context, packed.saved, slopes(activation, bits))
    return elementwise(context, "Mul", [g, factors])


def _unpack(context: Context, mask: Mask, table: Slopes) -> Value:
    """The derivatives, in the layout that the codes had."""
    b, codes = context.builder, mask.value
    if mask.packed is not None:
        return unpacked(context, mask.packed, table.unpacked.astype(np.float32), codes)
    index = b.add("Cast", context.at_hand(codes), to=TensorProto.INT32)
    factors = b.add("Gather", b.constant(table.levels.astype(np.float32)), index, axis=0)
    return _of_layout(context, codes, factors)


def _of_layout(context: Context, like: Value, name: str) -> Value:
    """A tensor of the shape that `like` has in its layout."""
    if context.in_rows(like):
        return Value(like.shape, rows=name)
    return Value(like.shape, plain=name)
