"""Operators that move elements: views, slices, paddings, and what is put together."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import as_number
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of

aten = torch.ops.aten


@lowers(
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
def _view(context: Context, node: fx.Node, x: Value, *args: Any) -> Value:
    shape = shape_of(node)
    if node.target is aten.unsqueeze.default and args == (0,) and len(shape) > 2:
        axis = context.builder.constant([0])
        return Value(shape, plain=context.builder.add("Unsqueeze", context.plain(x), axis))
    if x.merged is not None and shape == x.merged.shape:
        return x.merged
    behind = _images_behind(context, shape)
    if not behind and 1 < len(shape) < len(x.shape) and shape[1:] == x.shape[1 - len(shape) :]:
        return Value(shape, merged=x)
    if len(x.shape) == 1 and shape == (1, x.shape[0], 1, 1):
        return Value(shape, vector=context.plain(x))
    if x.vector is not None and shape == x.shape[1:2]:
        return Value(shape, plain=x.vector)
    if _is_flat(shape) and _is_flat(x.shape) and shape[:2] == x.shape[:2]:
        # (N, C) and (N, C, 1, 1) are the same rows
        rows = context.rows(x) if x.is_map else context.plain(x)
        return Value(shape, rows=rows) if len(shape) == 4 else Value(shape, plain=rows)
    one_value = x.one_for_all
    if one_value and one_value.shape[1:] == x.shape[1:] and shape[0] == x.shape[0]:
        one = context.reshape(context.plain(one_value), 1, *shape[1:])
        return Value(shape, expanded=Value((1, *shape[1:]), plain=one))
    # the leading dimension is the batch or the number of classes, which the kit leaves open; of
    # scores for each pixel, the second one is that of the classes, too
    pairs = zip(x.shape, shape, strict=False)
    same = next(
        (i for i, (old, new) in enumerate(pairs) if old != new), min(len(x.shape), len(shape))
    )
    place = behind if same < 2 else 0
    if place:
        sizes = [0 if same else shape[0], *shape[1:]]
        sizes[place] = -1
        return Value(shape, plain=context.reshape(context.plain(x), *sizes))
    if same > 1:
        return Value(shape, plain=context.reshape(context.plain(x), *[0] * same, *shape[same:]))
    return Value(shape, plain=context.reshape(context.plain(x), -1, *shape[1:]))


def _images_behind(context: Context, shape: tuple[int, ...]) -> int:
    """The dimension that the images are in, of any number, if it is not the first; else 0.

    So it is in the shape (3, N * heads, tokens, d) of queries, keys and values, and in that of
    tokens (tokens, N, d), as PyTorch's attention has them.
    """
    images = context.images
    if images is None or images.source is None or shape[0] % images.traced == 0:
        return 0
    return next((i for i, size in enumerate(shape) if i and size % images.traced == 0), 0)


def _is_flat(shape: tuple[int, ...]) -> bool:
    return len(shape) in (2, 4) and all(d == 1 for d in shape[2:])


@lowers(aten.expand.default)
def _expand(context: Context, node: fx.Node, x: Value, size: Sequence[int], **_: Any) -> Value:
    shape = shape_of(node)
    if x.constant is not None and context.images and shape[0] == context.images.traced:
        aligned = x.constant[(None,) * (len(shape) - len(x.shape))]
        x = Value(tuple(aligned.shape), constant=aligned)
    return Value(shape, expanded=x)


@lowers(aten.cat.default)
def _cat(context: Context, node: fx.Node, values: list[Value], dim: int = 0) -> Value:
    arguments: Any = node.args[0]
    result = node.meta["val"].dtype
    names = [
        context.plain(v if a.meta["val"].dtype == result else as_number(context, a, v, result))
        for a, v in zip(arguments, values, strict=True)
    ]
    return Value(shape_of(node), plain=context.builder.add("Concat", *names, axis=dim))


@lowers(aten.slice.Tensor)
def _slice(
    context: Context,
    node: fx.Node,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    end = torch.iinfo(torch.int64).max if end is None else end
    bounds = [context.builder.constant([v]) for v in (start or 0, end, dim)]
    step_name = context.builder.constant([step])
    name = context.builder.add("Slice", context.plain(x), *bounds, step_name)
    return Value(shape_of(node), plain=name)


@lowers(aten.slice_backward.default)
def _slice_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    sizes: Sequence[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> Value:
    """The gradient at the sliced positions, zeros elsewhere."""
    b, shape = context.builder, shape_of(node)
    dim %= len(shape)
    count, name = g.shape[dim], context.plain(g)
    if step > 1:  # every element with the zeros that follow it
        name = context.reshape(name, -1, *g.shape[1 : dim + 1], 1, *g.shape[dim + 1 :])
        ends = [0] * (2 * len(shape) + 2)
        ends[len(shape) + dim + 2] = step - 1
        name = b.add("Pad", name, b.constant(ends))
        name = context.reshape(name, *(0 for _ in shape[:dim]), count * step, *shape[dim + 1 :])
    start = range(shape[dim])[start:end:step].start
    pads = [0] * (2 * len(shape))
    pads[dim], pads[len(shape) + dim] = start, shape[dim] - start - count * step
    return Value(shape, plain=b.add("Pad", name, b.constant(pads)))


@lowers(aten.repeat.default)
def _repeat(context: Context, node: fx.Node, x: Value, repeats: list[int]) -> Value:
    sizes = [1] * (len(repeats) - len(x.shape)) + [*x.shape]
    if all(1 in pair for pair in zip(repeats, sizes, strict=True)):
        return Value(shape_of(node), expanded=x)
    b, name = context.builder, context.plain(x)
    if new := len(repeats) - len(x.shape):
        name = b.add("Unsqueeze", name, b.constant(range(new)))
    times = b.constant(repeats)
    return Value(shape_of(node), plain=b.add("Tile", name, times))


@lowers(aten.constant_pad_nd.default)
def _pad(context: Context, node: fx.Node, x: Value, pad: list[int], value: float = 0) -> Value:
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    pads = context.builder.constant(before + after)
    fill = context.builder.constant(float(value))
    name = context.builder.add("Pad", context.plain(x), pads, fill)
    return Value(shape_of(node), plain=name)
