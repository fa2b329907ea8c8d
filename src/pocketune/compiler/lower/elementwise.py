"""Elementwise operators on values of any layout, with PyTorch's broadcasting."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx import TensorProto
from torch import fx

from pocketune.compiler.lower.context import Context, lowers, shape_of
from pocketune.compiler.lower.fold import Scaled, fold_into_convolution
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


def elementwise(
    context: Context, op: str, operands: Sequence[Value | float], shape: tuple[int, ...]
) -> Value:
    """One ONNX operator over broadcast operands, in the layout that the full-size operand has."""
    small = [v.expanded or v for v in operands if isinstance(v, Value)]
    covered = tuple(torch.broadcast_shapes(*(v.shape for v in small)))
    if covered != shape:
        inner = elementwise(context, op, [_unexpand(v) for v in operands], covered)
        return Value(shape, expanded=inner)
    full = [v for v in small if v.shape == shape]
    if len(shape) == 4 and full and any(context.in_rows(v) for v in full):
        return _on_rows(context, op, operands, shape)
    names = [_plain_operand(context, v, len(shape)) for v in operands]
    return Value(shape, plain=context.builder.add(op, *names))


def _unexpand(operand: Value | float) -> Value | float:
    if isinstance(operand, Value) and operand.expanded is not None:
        return operand.expanded
    return operand


def _plain_operand(context: Context, operand: Value | float, rank: int) -> str:
    operand = _unexpand(operand)
    if not isinstance(operand, Value):
        return context.builder.constant(float(operand))
    return context.plain(operand)


def _on_rows(
    context: Context, op: str, operands: Sequence[Value | float], shape: tuple[int, ...]
) -> Value:
    """Rows (N*H*W, C); an operand that has one value an image makes it (N, H*W, C) meanwhile."""
    channels, pixels = shape[1], shape[2] * shape[3]
    operands = [_unexpand(v) for v in operands]
    per_image = any(
        isinstance(v, Value) and v.is_map and v.shape != shape and v.shape[0] != 1 for v in operands
    )
    names = []
    for operand in operands:
        if not isinstance(operand, Value):
            names.append(context.builder.constant(float(operand)))
        elif operand.shape == shape:
            rows = context.rows(operand)
            names.append(context.reshape(rows, -1, pixels, channels) if per_image else rows)
        elif not operand.is_map:
            names.append(_trailing(context, operand, channels))
        elif per_image and operand.shape[0] != 1:
            names.append(context.reshape(context.rows(operand), -1, 1, operand.shape[1]))
        else:
            names.append(context.rows(operand))
    result = context.builder.add(op, *names)
    if per_image:
        result = context.reshape(result, -1, channels)
    return Value(shape, rows=result)


def _trailing(context: Context, operand: Value, channels: int) -> str:
    """An operand of lower rank: only a scalar means the same on rows."""
    if all(d == 1 for d in operand.shape):
        return context.plain(operand)
    raise AssertionError(f"operand of shape {operand.shape} against a map of {channels} channels")


_BINARY = {
    aten.add.Tensor: "Add",
    aten.add_.Tensor: "Add",
    aten.sub.Tensor: "Sub",
    aten.mul.Tensor: "Mul",
    aten.mul_.Tensor: "Mul",
    aten.div.Tensor: "Div",
    aten.mul.Scalar: "Mul",
    aten.div.Scalar: "Div",
    aten.add.Scalar: "Add",
    aten.sub.Scalar: "Sub",
    aten.maximum.default: "Max",
    aten.minimum.default: "Min",
}


@lowers(*_BINARY)
def _binary(
    context: Context, node: fx.Node, a: Value | float, b: Value | float, alpha: float = 1
) -> Value:
    if alpha != 1:
        b = elementwise(context, "Mul", [b, alpha], b.shape if isinstance(b, Value) else ())
    op = _BINARY[node.target]
    folded = fold_into_convolution(context, op, a, b)
    if folded is not None:
        return folded
    result = elementwise(context, op, [a, b], shape_of(node))
    if op == "Mul" and isinstance(b, Value) and b.constant is not None:
        result.made_by = Scaled(a, b.constant)
    return result


_UNARY = {
    aten.neg.default: "Neg",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.sqrt.default: "Sqrt",
    aten.reciprocal.default: "Reciprocal",
    aten.abs.default: "Abs",
    aten.sigmoid.default: "Sigmoid",
    aten.tanh.default: "Tanh",
}


@lowers(*_UNARY)
def _unary(context: Context, node: fx.Node, x: Value) -> Value:
    return elementwise(context, _UNARY[node.target], [x], shape_of(node))


@lowers(aten.rsqrt.default)
def _rsqrt(context: Context, node: fx.Node, x: Value) -> Value:
    root = elementwise(context, "Sqrt", [x], x.shape)
    return elementwise(context, "Reciprocal", [root], x.shape)


@lowers(aten.pow.Tensor_Scalar)
def _power(context: Context, node: fx.Node, x: Value, exponent: float) -> Value:
    # a square written as Pow costs three times the product
    if exponent == 2:
        return elementwise(context, "Mul", [x, x], x.shape)
    return elementwise(context, "Pow", [x, float(exponent)], x.shape)


@lowers(aten._to_copy.default)
def _cast(context: Context, node: fx.Node, x: Value, **kwargs: Any) -> Value:
    if kwargs.get("dtype") is torch.float32:
        name = context.builder.add("Cast", context.plain(x), to=TensorProto.FLOAT)
        return Value(x.shape, plain=name)
    return x
