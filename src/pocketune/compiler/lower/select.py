"""Operators that select elements by constant indices, and their gradients."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.errors import PocketuneError

aten = torch.ops.aten


@lowers(aten.select.int)
def _select(context: Context, node: fx.Node, x: Value, dim: int, index: int) -> Value:
    axis = dim % len(x.shape)
    images = context.images
    if images and images.source and not axis and x.shape[0] == images.traced and not x.one_for_all:
        raise PocketuneError(
            "single images are taken out of their batch, whose size a kit leaves open; let the "
            "module compute all of them at once"
        )
    place = context.builder.constant(index % x.shape[axis])
    name = context.builder.add("Gather", context.plain(x), place, axis=axis)
    return Value(shape_of(node), plain=name)


@lowers(aten.flip.default)
def _flip(context: Context, node: fx.Node, x: Value, dims: Sequence[int]) -> Value:
    b, axes = context.builder, [d % len(x.shape) for d in dims]
    last, before = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    bounds = ([last] * len(axes), [before] * len(axes), axes, [-1] * len(axes))
    name = b.add("Slice", context.plain(x), *(b.constant(v) for v in bounds))
    return Value(shape_of(node), plain=name)


@lowers(aten.index_select.default)
def _index_select(context: Context, node: fx.Node, x: Value, dim: int, index: Value) -> Value:
    return _gathered(context, node, x, dim % len(x.shape), index)


@lowers(aten.index.Tensor)
def _index(context: Context, node: fx.Node, x: Value, indices: Sequence[Value | None]) -> Value:
    return _gathered(context, node, x, *_only(node, indices))


def _gathered(context: Context, node: fx.Node, x: Value, axis: int, index: Value) -> Value:
    name = context.builder.add("Gather", context.plain(x), context.plain(index), axis=axis)
    return Value(shape_of(node), plain=name)


@lowers(aten.index_put.default)
def _index_put(
    context: Context,
    node: fx.Node,
    x: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
) -> Value:
    """Values added at constant indices, as the gradient of `x[..., index]` needs it.

    ONNX adds whole slices of the first dimension, so the indexed one is brought there.
    """
    axis, index = _only(node, indices)
    if index.constant is None or not accumulate:
        raise PocketuneError(
            "writing at the places of an index cannot be compiled; add to a tensor of zeros, at "
            "places that are constant"
        )
    b, rank, many = context.builder, len(x.shape), len(index.shape)
    front = [axis, *(d for d in range(rank) if d != axis)]
    places = range(axis, axis + many)
    first = [*places, *(d for d in range(rank + many - 1) if d not in places)]
    rest = [x.shape[d] for d in front[1:]]
    updates = b.add("Transpose", context.plain(values), perm=first)
    updates = context.reshape(updates, index.constant.numel(), *rest)
    target = b.add("Transpose", context.plain(x), perm=front)
    at = index.constant.reshape(-1, 1) % x.shape[axis]
    name = b.add("ScatterND", target, b.constant(at.numpy()), updates, reduction="add")
    back = [front.index(d) for d in range(rank)]
    return Value(shape_of(node), plain=b.add("Transpose", name, perm=back))


def _only(node: fx.Node, indices: Sequence[Value | None]) -> tuple[int, Value]:
    """The one dimension that is indexed, and the index."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    argument = node.args[1]
    assert isinstance(argument, (list, tuple))
    types = [a.meta["val"].dtype for a in argument if isinstance(a, fx.Node)]
    if len(given) != 1 or types != [torch.int64]:
        raise PocketuneError(
            "indexing by a mask or in several dimensions at once cannot be compiled; index one "
            "dimension by whole numbers, or use torch.where"
        )
    return given[0]
