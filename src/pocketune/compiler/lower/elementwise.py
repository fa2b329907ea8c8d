"""Arithmetic, comparisons and casts on values of any layout, with PyTorch's broadcasting."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.errors import PocketuneError

aten = torch.ops.aten


def elementwise(
    context: Context,
    op: str,
    operands: Sequence[Value | float],
    **attributes: Any,
) -> Value:
    """One ONNX operator over broadcast operands, in the layout of the full-size operand."""
    shape = np.broadcast_shapes(*(v.shape for v in operands if isinstance(v, Value)))
    small = [v.expanded or v for v in operands if isinstance(v, Value)]
    covered = np.broadcast_shapes(*(v.shape for v in small))
    if covered != shape:
        inner = elementwise(context, op, [_unexpand(v) for v in operands], **attributes)
        return Value(shape, expanded=inner)
    if _rows_at_hand(context, small, shape):
        return _on_rows(context, op, operands, shape, **attributes)
    names = [_plain_operand(context, v) for v in operands]
    return Value(shape, plain=context.builder.add(op, *names, **attributes))


def _rows_at_hand(context: Context, operands: list[Value], shape: tuple[int, ...]) -> bool:
    """Whether a full-size operand is in rows, and all others broadcast to rows."""
    if not any(context.in_rows(v) and v.shape == shape for v in operands):
        return False
    pixels = shape[2] * shape[3]
    return all(v.pixels in (1, pixels) if v.is_map else _is_scalar(v) for v in operands)


def _is_scalar(value: Value) -> bool:
    return all(d == 1 for d in value.shape)


def _unexpand(operand: Value | float) -> Value | float:
    if isinstance(operand, Value) and operand.expanded is not None:
        return operand.expanded
    return operand


def _plain_operand(context: Context, operand: Value | float) -> str:
    operand = _unexpand(operand)
    if not isinstance(operand, Value):
        return context.builder.constant(float(operand))
    return context.plain(operand)


def _on_rows(
    context: Context,
    op: str,
    operands: Sequence[Value | float],
    shape: tuple[int, ...],
    **attributes: Any,
) -> Value:
    """The operator on rows (N*H*W, C).

    If an operand has one value per image or per pixel, the rows are reshaped to (N, H*W, C) for
    the operator. An operand (1, C, 1, 1) fits both shapes.
    """
    operands = [_unexpand(v) for v in operands]
    by_image = any(
        isinstance(v, Value) and v.is_map and v.shape != shape and (v.shape[0] != 1 or v.pixels > 1)
        for v in operands
    )
    names = [_rows_operand(context, v, by_image) for v in operands]
    result = context.builder.add(op, *names, **attributes)
    if all(v.vector is not None for v in operands if isinstance(v, Value) and v.is_map):
        return Value(shape, vector=result)
    return Value(shape, rows=context.reshape(result, -1, shape[1]) if by_image else result)


def _rows_operand(context: Context, operand: Value | float, by_image: bool) -> str:
    if not isinstance(operand, Value):
        return _plain_operand(context, operand)
    if not operand.is_map:  # one value, whose rank must not become that of the result
        plain = context.plain(operand)
        return context.reshape(plain, 1) if len(operand.shape) > 1 else plain
    rows = context.rows(operand)
    if not by_image or operand.shape[0] * operand.pixels == 1:
        return rows
    return context.reshape(rows, -1, operand.pixels, operand.shape[1])


_BINARY: dict[Any, str] = {
    aten.add.Tensor: "Add",
    aten.sub.Tensor: "Sub",
    aten.mul.Tensor: "Mul",
    aten.div.Tensor: "Div",
    aten.mul.Scalar: "Mul",
    aten.div.Scalar: "Div",
    aten.add.Scalar: "Add",
    aten.sub.Scalar: "Sub",
    aten.maximum.default: "Max",
    aten.minimum.default: "Min",
    aten.pow.Scalar: "Pow",
    aten.pow.Tensor_Tensor: "Pow",
}


@lowers(*_BINARY)
def _binary(
    context: Context, node: fx.Node, a: Value | float, b: Value | float, alpha: float = 1
) -> Value:
    a, b = _numbers(context, node, (a, b), node.meta["val"].dtype)
    if alpha != 1:
        times = _constant(alpha, node.meta["val"].dtype)
        b = elementwise(context, "Mul", [b, times])
    return elementwise(context, _BINARY[node.target], [a, b])


@lowers(aten.rsub.Scalar, aten.rsub.Tensor)
def _reversed(
    context: Context, node: fx.Node, a: Value | float, b: Value | float, alpha: float = 1
) -> Value:
    """`b - alpha * a`."""
    a, b = _numbers(context, node, (a, b), node.meta["val"].dtype)
    if alpha != 1:
        assert isinstance(a, Value)
        a = elementwise(context, "Mul", [a, _constant(alpha, node.meta["val"].dtype)])
    return elementwise(context, "Sub", [b, a])


@lowers(aten.addcmul.default)
def _addcmul(
    context: Context, node: fx.Node, a: Value, b: Value, c: Value, value: float = 1
) -> Value:
    """`a + value * b * c`, as `FrozenBatchNorm2d` has it."""
    product = elementwise(context, "Mul", [b, c])
    if value != 1:
        product = elementwise(context, "Mul", [product, value])
    return elementwise(context, "Add", [product, a])


def _numbers(
    context: Context, node: fx.Node, operands: Sequence[Value | float], result: torch.dtype
) -> list[Value | float]:
    """The first arguments of a node as `as_number` and `_constant` give them."""
    return [
        as_number(context, argument, value, result)
        if isinstance(value, Value)
        else _constant(value, result)
        for argument, value in zip(node.args, operands, strict=False)
    ]


def _constant(number: float, result: torch.dtype) -> Value | float:
    """A number as an integer, if the result is one."""
    if result not in _INTEGERS:
        return number
    return Value((), constant=torch.tensor(number, dtype=result))


_INTEGERS = {
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.uint8: TensorProto.UINT8,
    torch.int8: TensorProto.INT8,
}


def as_number(context: Context, argument: Any, value: Value, result: torch.dtype) -> Value:
    """An operand as an integer, if the result is one; as a float, if that is one or a mask.

    PyTorch computes with masks and integers beside floats, ONNX does not.
    """
    dtype = argument.meta["val"].dtype
    if dtype.is_floating_point or dtype == result:
        return value if dtype != torch.bool else _cast_to(context, value, TensorProto.FLOAT)
    return _cast_to(context, value, _INTEGERS.get(result, TensorProto.FLOAT))


def _cast_to(context: Context, value: Value, kind: int) -> Value:
    return elementwise(context, "Cast", [value], to=kind)


_UNARY: dict[Any, str] = {
    aten.neg.default: "Neg",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.sqrt.default: "Sqrt",
    aten.reciprocal.default: "Reciprocal",
    aten.abs.default: "Abs",
    aten.erf.default: "Erf",
    aten.round.default: "Round",
    aten.sign.default: "Sign",
    aten.sgn.default: "Sign",
    aten.sigmoid.default: "Sigmoid",
    aten.tanh.default: "Tanh",
    aten.ceil.default: "Ceil",
    aten.floor.default: "Floor",
    aten.sin.default: "Sin",
    aten.cos.default: "Cos",
}


@lowers(*_UNARY)
def _unary(context: Context, node: fx.Node, x: Value) -> Value:
    x = as_number(context, node.args[0], x, node.meta["val"].dtype)
    return elementwise(context, _UNARY[node.target], [x])


@lowers(aten.expm1.default)
def _expm1(context: Context, node: fx.Node, x: Value) -> Value:
    return elementwise(context, "Sub", [elementwise(context, "Exp", [x]), 1.0])


@lowers(aten.log1p.default)
def _log1p(context: Context, node: fx.Node, x: Value) -> Value:
    return elementwise(context, "Log", [elementwise(context, "Add", [x, 1.0])])


@lowers(aten.clamp.default)
def _clamp(
    context: Context, node: fx.Node, x: Value, low: float | None = None, high: float | None = None
) -> Value:
    result = node.meta["val"].dtype
    x = as_number(context, node.args[0], x, result)
    bounds = [_constant(bound, result) for bound in (low, high) if bound is not None]
    op = "Min" if low is None else "Max" if high is None else "Clip"
    return elementwise(context, op, [x, *bounds])


@lowers(aten.rsqrt.default)
def _rsqrt(context: Context, node: fx.Node, x: Value) -> Value:
    root = elementwise(context, "Sqrt", [x])
    return elementwise(context, "Reciprocal", [root])


@lowers(aten.pow.Tensor_Scalar)
def _power(context: Context, node: fx.Node, x: Value, exponent: float) -> Value:
    # a square written as Pow costs three times the product
    if exponent == 2:
        return elementwise(context, "Mul", [x, x])
    return elementwise(context, "Pow", [x, float(exponent)])


_CASTS = {
    torch.float32: TensorProto.FLOAT,
    torch.uint8: TensorProto.UINT8,
    torch.int8: TensorProto.INT8,
}


@lowers(aten._to_copy.default)
def _cast(
    context: Context, node: fx.Node, x: Value, dtype: torch.dtype | None = None, **_: Any
) -> Value:
    if dtype not in _CASTS:
        raise PocketuneError(f"a conversion to {dtype} cannot be compiled; compute in float32")
    return _cast_to(context, x, _CASTS[dtype])


@lowers(aten.copy.default)
def _copy(context: Context, node: fx.Node, x: Value, source: Value, *_: Any) -> Value:
    """What is written into a tensor or a part of it."""
    if source.shape == x.shape:
        return source
    return Value(x.shape, expanded=source)


_COMPARISONS: dict[Any, str] = {
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.ge.Scalar: "GreaterOrEqual",
    aten.ge.Tensor: "GreaterOrEqual",
    aten.lt.Scalar: "Less",
    aten.lt.Tensor: "Less",
    aten.le.Scalar: "LessOrEqual",
    aten.le.Tensor: "LessOrEqual",
    aten.eq.Scalar: "Equal",
    aten.eq.Tensor: "Equal",
    aten.ne.Scalar: "Equal",
    aten.ne.Tensor: "Equal",
    aten.logical_and.default: "And",
    aten.bitwise_and.Tensor: "And",
    aten.logical_or.default: "Or",
    aten.bitwise_or.Tensor: "Or",
    aten.logical_not.default: "Not",
    aten.bitwise_not.default: "Not",
}


@lowers(*_COMPARISONS)
def _compare(context: Context, node: fx.Node, *operands: Value | float) -> Value:
    given: Any = [a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args]
    kind = torch.result_type(*given) if len(given) == 2 else torch.bool
    if kind != torch.bool:
        operands = tuple(_numbers(context, node, operands, kind))
    elif any(not isinstance(each, Value) for each in operands):
        operands = tuple(_numbers(context, node, operands, torch.float32))
    compared = elementwise(context, _COMPARISONS[node.target], operands)
    if node.target in (aten.ne.Scalar, aten.ne.Tensor):
        return elementwise(context, "Not", [compared])
    return compared


@lowers(aten.where.self)
def _where(context: Context, node: fx.Node, mask: Value, a: Value, b: Value) -> Value:
    result = node.meta["val"].dtype
    a, b = (
        as_number(context, argument, value, result)
        for argument, value in zip(node.args[1:], (a, b), strict=True)
    )
    return elementwise(context, "Where", [mask, a, b])
