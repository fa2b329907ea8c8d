"""Softmax and its logarithm inside a network, with their gradients, for any number of classes."""

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


@lowers(aten._softmax.default)
def _softmax(context: Context, node: fx.Node, x: Value, dim: int, half: bool) -> Value:
    return Value(x.shape, plain=context.builder.add("Softmax", context.plain(x), axis=dim))


@lowers(aten._log_softmax.default)
def _log_softmax(context: Context, node: fx.Node, x: Value, dim: int, half: bool) -> Value:
    return Value(x.shape, plain=context.builder.add("LogSoftmax", context.plain(x), axis=dim))


@lowers(aten._softmax_backward_data.default)
def _softmax_backward(
    context: Context, node: fx.Node, g: Value, y: Value, dim: int, dtype: torch.dtype
) -> Value:
    """`y (g - sum(g y))`."""
    b, given, made = context.builder, context.plain(g), context.plain(y)
    total = _sum(context, b.add("Mul", given, made), dim)
    return Value(y.shape, plain=b.add("Mul", made, b.add("Sub", given, total)))


@lowers(aten._log_softmax_backward_data.default)
def _log_softmax_backward(
    context: Context, node: fx.Node, g: Value, y: Value, dim: int, dtype: torch.dtype
) -> Value:
    """`g - exp(y) sum(g)`."""
    b, given = context.builder, context.plain(g)
    share = b.add("Mul", b.add("Exp", context.plain(y)), _sum(context, given, dim))
    return Value(y.shape, plain=b.add("Sub", given, share))


def _sum(context: Context, name: str, dim: int) -> str:
    axis = context.builder.constant(np.array([dim]))
    return context.builder.add("ReduceSum", name, axis, keepdims=1)
