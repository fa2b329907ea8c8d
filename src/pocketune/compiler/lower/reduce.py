"""Sums, means and extremes over dimensions, and the sum of every channel."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import as_number, elementwise
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.errors import PocketuneError

aten = torch.ops.aten

Dims = Sequence[int] | None
"""Dimensions that are reduced; all, where there are none."""

_REDUCTIONS: dict[Any, str] = {
    aten.mean.dim: "ReduceMean",
    aten.sum.dim_IntList: "ReduceSum",
    aten.amax.default: "ReduceMax",
    aten.amin.default: "ReduceMin",
}


@lowers(*_REDUCTIONS)
def _reduction(
    context: Context, node: fx.Node, x: Value, dims: Dims = None, keepdim: bool = False, **_: Any
) -> Value:
    return _reduce(context, node, _REDUCTIONS[node.target], x, dims, keepdim)


@lowers(aten.linalg_vector_norm.default)
def _norm(
    context: Context,
    node: fx.Node,
    x: Value,
    order: float = 2,
    dims: Dims = None,
    keepdim: bool = False,
    **_: Any,
) -> Value:
    if order not in (1, 2):
        raise PocketuneError(f"a vector norm of order {order} cannot be compiled; use order 1 or 2")
    if order == 1:
        x = elementwise(context, "Abs", [x])
    return _reduce(context, node, "ReduceSum" if order == 1 else "ReduceL2", x, dims, keepdim)


@lowers(aten.cumsum.default)
def _running_sum(context: Context, node: fx.Node, x: Value, dim: int, **_: Any) -> Value:
    x = as_number(context, node.args[0], x, node.meta["val"].dtype)
    axis = context.builder.constant(dim % len(x.shape))
    name = context.builder.add("CumSum", context.plain(x), axis)
    return Value(shape_of(node), plain=name)


def _reduce(context: Context, node: fx.Node, op: str, x: Value, dims: Dims, keepdim: bool) -> Value:
    x = as_number(context, node.args[0], x, node.meta["val"].dtype)
    rank = len(x.shape)
    dims = sorted(d % rank for d in (dims or range(rank)))
    shape = shape_of(node)
    if dims == [2, 3] and context.in_rows(x) and x.pixels > 1:
        stack = context.reshape(context.rows(x), -1, x.pixels, x.shape[1])
        axis = context.builder.constant([1])
        rows = context.builder.add(op, stack, axis, keepdims=0)
        return Value(shape, rows=rows) if keepdim else Value(shape, plain=rows)
    sums = op in ("ReduceSum", "ReduceMean") and node.meta["val"].is_floating_point()
    if dims == [0, 2, 3] and sums and context.in_rows(x):
        total = context.plain(channel_sum(context, x))
        if op == "ReduceMean":
            count = context.builder.constant(1 / (x.shape[0] * x.pixels))
            total = context.builder.add("Mul", total, count)
        return Value(shape, vector=total) if keepdim else Value(shape, plain=total)
    axes = context.builder.constant(np.array(dims, np.int64))
    by_channel = keepdim and dims == [0, 2, 3] and x.is_map
    keepdims = int(keepdim and not by_channel)
    name = context.builder.add(op, context.plain(x), axes, keepdims=keepdims)
    return Value(shape, vector=name) if by_channel else Value(shape, plain=name)


def channel_sum(context: Context, x: Value) -> Value:
    """Sum of every channel of a map, (C,); on rows it is a product with ones."""
    channels, count = x.shape[1], x.shape[0] * x.pixels
    if x.expanded is not None and x.expanded.shape == (*x.shape[:2], 1, 1):
        total = context.plain(channel_sum(context, x.expanded))
        name = context.builder.add("Mul", total, context.builder.constant(float(x.pixels)))
    elif context.in_rows(x):
        ones = context.builder.constant(np.ones(count, np.float32), hint="ones")
        name = context.builder.add("MatMul", ones, context.rows(x))
    else:
        axes = context.builder.constant([0, 2, 3])
        name = context.builder.add("ReduceSum", context.plain(x), axes, keepdims=0)
    return Value((channels,), plain=name)
