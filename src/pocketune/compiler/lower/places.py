"""Operators that find places by values, and read or write there; their gradients are among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of

aten = torch.ops.aten


@lowers(aten.topk.default)
def _topk(
    context: Context,
    node: fx.Node,
    x: Value,
    count: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[Value, Value]:
    k = context.builder.constant([count])
    values, indices = context.builder.add_many(
        "TopK", [context.plain(x), k], 2, axis=dim, largest=int(largest), sorted=int(sorted)
    )
    shape = tuple(count if i == dim % len(x.shape) else d for i, d in enumerate(x.shape))
    return Value(shape, plain=values), Value(shape, plain=indices)


_EXTREMES: dict[Any, tuple[str, str]] = {
    aten.max.dim: ("ReduceMax", "ArgMax"),
    aten.min.dim: ("ReduceMin", "ArgMin"),
}


@lowers(*_EXTREMES)
def _extreme(
    context: Context, node: fx.Node, x: Value, dim: int, keepdim: bool = False
) -> tuple[Value, Value]:
    """The largest or smallest elements along a dimension, and the first places of them."""
    b, axis, name = context.builder, dim % len(x.shape), context.plain(x)
    shape = tuple(node.meta["val"][0].shape)
    of_values, of_places = _EXTREMES[node.target]
    values = b.add(of_values, name, b.constant([axis]), keepdims=int(keepdim))
    places = b.add(of_places, name, axis=axis, keepdims=int(keepdim))
    return Value(shape, plain=values), Value(shape, plain=places)


@lowers(aten.tril.default, aten.triu.default)
def _triangle(context: Context, node: fx.Node, x: Value, diagonal: int = 0) -> Value:
    upper = int(node.target is aten.triu.default)
    b = context.builder
    name = b.add("Trilu", context.plain(x), b.constant(diagonal), upper=upper)
    return Value(shape_of(node), plain=name)


@lowers(aten.gather.default)
def _gather(context: Context, node: fx.Node, x: Value, dim: int, index: Value, **_: bool) -> Value:
    axis = dim % len(x.shape)
    names = context.plain(x), context.plain(index)
    return Value(shape_of(node), plain=context.builder.add("GatherElements", *names, axis=axis))


@lowers(aten.scatter.src, aten.scatter_add.default)
def _scatter(
    context: Context, node: fx.Node, x: Value, dim: int, index: Value, source: Value
) -> Value:
    axis = dim % len(x.shape)
    column = *x.shape[:axis], 1, *x.shape[axis + 1 :]
    if index.shape == source.shape == column and _is_zero(x):
        return _one_hot(context, x.shape, axis, index, source)
    b, names = context.builder, [context.plain(value) for value in (x, index, source)]
    smaller = [i for i, side in enumerate(index.shape) if side < source.shape[i]]
    if smaller:  # PyTorch leaves out what has no place
        bounds = ([0] * len(smaller), [index.shape[i] for i in smaller], smaller)
        names[2] = b.add("Slice", names[2], *(b.constant(bound) for bound in bounds))
    how = "add" if node.target is aten.scatter_add.default else "none"
    name = b.add("ScatterElements", *names, axis=axis, reduction=how)
    return Value(shape_of(node), plain=name)


def _is_zero(value: Value) -> bool:
    constant = (value.expanded or value).constant
    return constant is not None and not constant.any()


def _one_hot(
    context: Context, shape: tuple[int, ...], axis: int, index: Value, source: Value
) -> Value:
    """Zeros but for one element along an axis; other dimensions may be the number of classes."""
    b = context.builder
    places = np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - 1 - axis))
    is_place = b.add("Equal", context.plain(index), b.constant(places))
    return Value(shape, plain=b.add("Where", is_place, context.plain(source), b.constant(0.0)))
