"""Patches of feature maps, which gradient filtering pools and spreads; see `filtering.patches`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.conv import input_gradient
from pocketune.compiler.lower.geometry import Geometry
from pocketune.compiler.lower.kernel_gradient import kernel_gradient
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.filtering.patches import before_and_after
from pocketune.layers.quantized import LARGEST

ops = torch.ops.pocketune


@lowers(ops.patch_pool.default)
def _pool(
    context: Context,
    node: fx.Node,
    x: Value,
    size: list[int],
    start: list[int],
    count: list[int],
    divisor: int | None,
) -> Value:
    shape = shape_of(node)
    if context.in_rows(x) or context.prefers_rows(x):
        return Value(shape, rows=_pool_rows(context, x, size, start, count, divisor))
    return Value(shape, plain=_pool_plain(context, x, size, start, count, divisor))


def _pool_rows(
    context: Context,
    x: Value,
    size: list[int],
    start: list[int],
    count: list[int],
    divisor: int | None,
) -> str:
    """A product with a constant matrix (patches, pixels), image by image."""
    places = _places(size, start, count, list(x.shape[2:]))
    matrix = (np.arange(count[0] * count[1])[:, None] == places[None]).astype(np.float32)
    matrix /= divisor or np.maximum(matrix.sum(1, keepdims=True), 1)
    images = context.reshape(context.rows(x), -1, x.pixels, x.shape[1])
    pooled = context.builder.add("MatMul", context.builder.constant(matrix, "patches"), images)
    return context.reshape(pooled, -1, x.shape[1])


def _pool_plain(
    context: Context,
    x: Value,
    size: list[int],
    start: list[int],
    count: list[int],
    divisor: int | None,
) -> str:
    """An average over whole windows."""
    b = context.builder
    before, after = before_and_after(size, start, count, list(x.shape[2:]))
    name, pads = context.plain(x), [*before, *after]
    if not all(0 <= pad < n for pad, n in zip(pads, [*size, *size], strict=True)):
        name, pads = _fit(context, name, x.shape[2:], pads), [0, 0, 0, 0]
    average = b.add(
        "AveragePool", name, kernel_shape=size, strides=size, pads=pads, count_include_pad=1
    )
    area = size[0] * size[1]
    if divisor is not None:
        return b.add("Mul", average, b.constant(area / divisor)) if divisor != area else average
    held = [
        np.clip(np.arange(1, n + 1) * c + s, 0, d) - np.clip(np.arange(n) * c + s, 0, d)
        for n, c, s, d in zip(count, size, start, x.shape[2:], strict=True)
    ]
    share = np.maximum(np.outer(*held), 1) / area
    if (share == 1).all():
        return average
    return b.add("Mul", average, b.constant((1 / share).astype(np.float32)))


def _fit(context: Context, name: str, shape: Sequence[int], pads: list[int]) -> str:
    """Pad a map of this height and width with zeros, or crop it where `pads` are negative.

    `pads` are top, left, bottom, right. Padding comes first, because the crop may remove the whole
    map.
    """
    b = context.builder
    top, left, bottom, right = (max(pad, 0) for pad in pads)
    if any((top, left, bottom, right)):
        name = b.add("Pad", name, b.constant([0, 0, top, left, 0, 0, bottom, right]))
    if min(pads) >= 0:
        return name
    first = [max(-pad, 0) for pad in pads[:2]]
    last = [
        d + before + after for d, before, after in zip(shape, (top, left), pads[2:], strict=True)
    ]
    return b.add("Slice", name, *(b.constant(v) for v in (first, last, [2, 3])))


def _places(size: list[int], start: list[int], count: list[int], shape: list[int]) -> np.ndarray:
    """For each pixel of a map, the index of its patch, or -1 outside all patches."""
    down, across = ((np.arange(d) - s) // n for d, s, n in zip(shape, start, size, strict=True))
    inside = np.logical_and.outer(
        (down >= 0) & (down < count[0]), (across >= 0) & (across < count[1])
    )
    return np.where(inside, np.add.outer(down * count[1], across), -1).ravel()


@lowers(ops.patch_spread.default)
def _spread(
    context: Context,
    node: fx.Node,
    values: Value,
    size: list[int],
    start: list[int],
    shape: list[int],
) -> Value:
    result = Value(shape_of(node))
    if context.prefers_rows(result):
        result.rows = _spread_rows(context, values, size, start, shape)
    else:
        result.plain = _spread_plain(context, values, size, start, shape)
    return result


def _spread_rows(
    context: Context, values: Value, size: list[int], start: list[int], shape: list[int]
) -> str:
    """Rows selected by patch; pixels outside all patches select an added row of zeros."""
    b = context.builder
    channels = values.shape[1]
    places = _places(size, start, list(values.shape[2:]), shape)
    patches = context.reshape(context.rows(values), -1, values.pixels, channels)
    if (places < 0).any():
        patches = b.add("Pad", patches, b.constant([0, 0, 0, 0, 1, 0]))
        places = np.where(places < 0, values.pixels, places)
    return context.reshape(b.add("Gather", patches, b.constant(places), axis=1), -1, channels)


def _spread_plain(
    context: Context, values: Value, size: list[int], start: list[int], shape: list[int]
) -> str:
    b = context.builder
    channels, height, width = values.shape[1:]
    cells = context.reshape(context.plain(values), -1, channels, height, 1, width, 1)
    grown = b.add("Expand", cells, b.constant([1, 1, 1, size[0], 1, size[1]]))
    extent = (height * size[0], width * size[1])
    name = context.reshape(grown, -1, channels, *extent)
    before, after = before_and_after(size, start, (height, width), shape)
    return _fit(context, name, extent, [-pad for pad in (*before, *after)])


@lowers(ops.patch_input_gradient.default)
def _input_gradient(
    context: Context, node: fx.Node, g: Value, kernel: Value, dilation: list[int], groups: int
) -> Value:
    result = Value(shape_of(node))
    geo = _geometry(kernel.shape, dilation, groups, result.shape[1])
    return input_gradient(context, geo, g, result, kernel)


@lowers(ops.patch_kernel_gradient.default)
def _kernel_gradient(context: Context, node: fx.Node, g: Value, x: Value, groups: int) -> Value:
    result = Value(shape_of(node))
    geo = _geometry(result.shape, [1, 1], groups, x.shape[1])
    return kernel_gradient(context, geo, g, x, result)


@lowers(ops.int8_scale.default)
def _int8_scale(context: Context, node: fx.Node, x: Value) -> Value:
    b = context.builder
    largest = b.add("ReduceMax", b.add("Abs", context.at_hand(x)), keepdims=0)
    scale = b.add("Div", largest, b.constant(float(LARGEST)))
    one = b.constant(1.0)
    return Value((), plain=b.add("Where", b.add("Equal", scale, b.constant(0.0)), one, scale))


def _geometry(
    kernel: tuple[int, ...], dilation: list[int], groups: int, channels_in: int
) -> Geometry:
    """Geometry of a convolution with stride 1 that keeps the size."""
    outputs, _, height, width = kernel
    steps = (dilation[0], dilation[1]) if max(height, width) > 1 else (1, 1)
    top, left = height // 2 * steps[0], width // 2 * steps[1]
    return Geometry(
        kernel=(height, width),
        stride=(1, 1),
        pads=(top, left, top, left),
        dilation=steps,
        groups=groups,
        channels_in=channels_in,
        channels_out=outputs,
    )
