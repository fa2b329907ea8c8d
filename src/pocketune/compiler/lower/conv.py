"""Convolution and its gradients, each written as the fastest operators for its shape."""

from dataclasses import replace

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.centered import center_of
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.geometry import (
    Geometry,
    convolve,
    depthwise_hint,
    geometry,
    in_preferred_layout,
    kernel_matrix,
    pair,
    reached,
)
from pocketune.compiler.lower.kernel_gradient import kernel_gradient
from pocketune.compiler.lower.reduce import channel_sum
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.errors import PocketuneError

aten = torch.ops.aten

# Elements from which a frozen 1x1 kernel is transposed in every step in place of being kept twice,
# which would take a third of the memory of a step that trains biases on one image. Transposing
# all of MobileNetV2's takes 1 ms. A smaller kernel takes less than the node.
TRANSPOSED_LEAST_ELEMENTS = 4096

# Bytes up to which the runtime may unfold a gradient: for a transposed convolution, it holds every
# tap of every pixel of an image.
UNFOLDED_MAX_BYTES = 8 << 20


@lowers(aten.convolution.default)
def _convolution(
    context: Context,
    node: fx.Node,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Value:
    if transposed:
        geo = _of_transposed(shape_of(node), w, stride, padding, dilation, output_padding, groups)
        return _transposed(context, node, geo, x, w, bias)
    geo = geometry(x.shape[1], w, stride, padding, dilation, groups, node.meta.get("pads"))
    near = reached(geo, x.shape, shape_of(node))
    if x.one_for_all and not w.open:
        one = (1, *shape_of(node)[1:])
        y = convolve(context, near.geo, x.one_for_all, near.crop(context, w), bias, one)
        return Value(shape_of(node), expanded=y)
    one_pass = bias is None and not w.open and not context.prefers_rows(Value(shape_of(node)))
    center = center_of(context, node) if one_pass else None
    if center is not None:
        bias = Value(w.shape[:1], plain=context.builder.add("Neg", center))
    y = convolve(context, near.geo, x, near.crop(context, w), bias, shape_of(node))
    return replace(y, center=center)


def _transposed(
    context: Context,
    node: fx.Node,
    geo: Geometry,
    g: Value,
    w: Value,
    bias: Value | None,
) -> Value:
    """A transposed convolution is the gradient of a convolution's input: `FrozenConv2d`'s."""
    shape = shape_of(node)
    near = reached(geo, shape, g.shape)
    y = input_gradient(context, near.geo, g, Value(shape), near.crop(context, w))
    if bias is None:
        return y
    shift = Value((1, shape[1], 1, 1), vector=context.plain(bias))
    return elementwise(context, "Add", [y, shift])


def _of_transposed(
    shape: tuple[int, ...],
    w: Value,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    groups: int,
) -> Geometry:
    """The convolution that goes from the output of a transposed one, of this shape, to its input.

    Rows and columns of an output padding are those that no window reaches, which are fewer than the
    stride. Where there are more, they are the ones that less padding leaves behind the others.
    """
    geo = geometry(shape[1], w, stride, padding, dilation, groups)
    top, left, bottom, right = geo.pads
    vertical, horizontal = (
        more if more >= step else 0
        for more, step in zip(pair(output_padding), geo.stride, strict=True)
    )
    if vertical > bottom or horizontal > right:
        raise PocketuneError(
            f"a transposed convolution with output_padding={tuple(output_padding)}, "
            f"stride={tuple(stride)} and padding={tuple(padding)} cannot be compiled; give an "
            "output_padding below the stride, or up to the padding"
        )
    return replace(geo, pads=(top, left, bottom - vertical, right - horizontal))


@lowers(aten.convolution_backward.default)
def _convolution_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    x: Value,
    w: Value,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    needed: list[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    # a transposed convolution is the gradient of one that goes from its output to its input
    large, small = (g, x) if transposed else (x, g)
    geo = (
        _of_transposed(large.shape, w, stride, padding, dilation, output_padding, groups)
        if transposed
        else geometry(large.shape[1], w, stride, padding, dilation, groups)
    )
    near = reached(geo, large.shape, small.shape)
    geo, kernel = near.geo, near.crop(context, w)
    dx = dw = None
    if needed[0] and transposed:
        dx = convolve(context, geo, g, kernel, None, x.shape)
    elif needed[0]:
        dx = input_gradient(context, geo, g, x, kernel)
    if needed[1]:
        dw = near.grow(context, kernel_gradient(context, geo, small, large, kernel))
    return dx, dw, channel_sum(context, g) if needed[2] else None


# ---- gradient of the input


def input_gradient(context: Context, geo: Geometry, g: Value, x: Value, w: Value) -> Value:
    """Gradient of the input from that of the output; of `x` only the shape is used."""
    if geo.pointwise and context.prefers_rows(x) and not w.open:
        rows = context.builder.add("Gemm", context.rows(g), kernel_matrix(context, w))
        return Value(x.shape, rows=rows)
    if geo.pointwise:
        transposed = _transposed_pointwise(context, w)
        name = context.builder.add("Conv", context.plain(g), transposed)
    elif geo.depthwise and geo.stride == (1, 1) and geo.padded_by_less_than_kernel:
        flipped = Value(x.shape, plain=_correlate_flipped(context, geo, g, w))
        return in_preferred_layout(context, flipped)
    elif _unfolds_much(geo, g):
        name = _correlate_turned(context, geo, g, w)
    else:
        name = _transposed_convolution(context, geo, g, x, w)
    return Value(x.shape, plain=name)


def _transposed_pointwise(context: Context, w: Value) -> str:
    if w.constant is not None and w.constant.numel() < TRANSPOSED_LEAST_ELEMENTS:
        return context.builder.constant(w.constant.transpose(0, 1).contiguous().numpy())
    return context.builder.add("Transpose", context.plain(w), perm=[1, 0, 2, 3])


def _correlate_flipped(context: Context, geo: Geometry, g: Value, w: Value) -> str:
    """Depthwise, stride 1: an ordinary convolution with the kernel turned by 180 degrees."""
    kh, kw = geo.kernel
    if w.constant is not None:
        flipped = context.builder.constant(w.constant.flip(2, 3).contiguous().numpy())
    else:
        taps = context.reshape(context.plain(w), geo.channels_out, kh * kw)
        order = context.builder.constant(np.arange(kh * kw, dtype=np.int64)[::-1].copy())
        taps = context.builder.add("Gather", taps, order, axis=1)
        flipped = context.reshape(taps, geo.channels_out, 1, kh, kw)
    hint = depthwise_hint(geo.groups)
    attributes = {**geo.attributes, "pads": geo.turned_pads}
    return context.builder.add("Conv", context.plain(g), flipped, hint=hint, **attributes)


def _unfolds_much(geo: Geometry, g: Value) -> bool:
    taps = geo.kernel[0] * geo.kernel[1]
    unfolded = 4 * geo.channels_in * taps * g.pixels
    simple = geo.groups == 1 and geo.stride == (1, 1) and geo.padded_by_less_than_kernel
    return simple and unfolded > UNFOLDED_MAX_BYTES


def _correlate_turned(context: Context, geo: Geometry, g: Value, w: Value) -> str:
    """Dense, stride 1: a convolution with the kernel turned, and its channels exchanged."""
    b = context.builder
    if w.constant is not None:
        turned = b.constant(w.constant.flip(2, 3).transpose(0, 1).contiguous().numpy())
    else:
        height, width = geo.kernel
        taps = context.reshape(context.plain(w), *w.shape[:2], height * width)
        order = b.constant(np.arange(height * width, dtype=np.int64)[::-1].copy())
        taps = b.add("Transpose", b.add("Gather", taps, order, axis=2), perm=[1, 0, 2])
        turned = context.reshape(taps, geo.channels_in, geo.channels_out, height, width)
    attributes = {**geo.attributes, "pads": geo.turned_pads}
    return b.add("Conv", context.plain(g), turned, **attributes)


def _transposed_convolution(context: Context, geo: Geometry, g: Value, x: Value, w: Value) -> str:
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.stride, geo.dilation
    top, left, bottom, right = geo.pads
    height = (g.shape[2] - 1) * sh + (kh - 1) * dh + 1 - top - bottom
    width = (g.shape[3] - 1) * sw + (kw - 1) * dw + 1 - left - right
    attributes = {
        **geo.attributes,
        "output_padding": [x.shape[2] - height, x.shape[3] - width],
    }
    return context.builder.add("ConvTranspose", context.plain(g), context.plain(w), **attributes)
