"""The gradient of a convolution's kernel, written as the fastest operators for its shape."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from pocketune.compiler.lower.context import Context
from pocketune.compiler.lower.geometry import Geometry, depthwise_hint, overlap
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.blocked import KERNEL_GRADIENT

# Input channels up to which the gradient of a dense kernel is one convolution, whose images they
# are. With more channels, products tap by tap are faster.
CONVOLVED_MAX_CHANNELS = 4


def kernel_gradient(context: Context, geo: Geometry, g: Value, x: Value, w: Value) -> Value:
    """Gradient of the kernel from input and output gradient; of `w` only the shape is used."""
    if w.open:
        name = _open_kernel_gradient(context, geo, g, x)
        return Value(w.shape, plain=context.reshape(name, -1, *w.shape[1:]))
    if geo.pointwise:
        rows = _pointwise_kernel_gradient(context, g, x)
        return Value(w.shape, plain=context.reshape(rows, *w.shape))
    if geo.depthwise:
        name = _depthwise_kernel_gradient(context, geo, g, x)
    elif geo.groups > 1 or geo.channels_in <= CONVOLVED_MAX_CHANNELS:
        name = _convolved_kernel_gradient(context, geo, g, x)
    elif geo.dilation != (1, 1):
        name = _kernel_gradient_by_overlaps(context, geo, g, x)
    else:
        name = _kernel_gradient_by_taps(context, geo, g, x)
    return Value(w.shape, plain=context.reshape(name, *w.shape))


def _open_kernel_gradient(context: Context, geo: Geometry, g: Value, x: Value) -> str:
    """The gradient of a kernel for any number of outputs; no node has that number."""
    if not geo.pointwise:
        return _convolved_kernel_gradient(context, geo, g, x)
    flat_g = context.reshape(context.plain(g), x.shape[0], -1, g.pixels)
    flat_x = context.reshape(context.plain(x), -1, x.shape[1], x.pixels)
    return _sum_leading(context, _times_transposed(context, flat_g, flat_x))


def _pointwise_kernel_gradient(context: Context, g: Value, x: Value) -> str:
    if context.prefers_rows(x):
        return context.builder.add("Gemm", context.rows(g), context.rows(x), transA=1)
    if x.shape[0] == 1:
        flat_g = context.reshape(context.plain(g), g.shape[1], g.pixels)
        flat_x = context.reshape(context.plain(x), x.shape[1], x.pixels)
        return context.builder.add("Gemm", flat_g, flat_x, transB=1)
    # G (O, HW) times X^T (HW, I) for each image, then the sum over the images. The operand with
    # fewer channels is transposed.
    flat_g = context.reshape(context.plain(g), -1, g.shape[1], g.pixels)
    flat_x = context.reshape(context.plain(x), -1, x.shape[1], x.pixels)
    if x.shape[1] <= g.shape[1]:
        return _sum_leading(context, _times_transposed(context, flat_g, flat_x))
    total = _sum_leading(context, _times_transposed(context, flat_x, flat_g))
    return context.builder.add("Transpose", total, perm=[1, 0])


def _times_transposed(context: Context, a: str, b: str) -> str:
    """A B^T of every matrix in a batch."""
    return context.builder.add("MatMul", a, context.builder.add("Transpose", b, perm=[0, 2, 1]))


def _kernel_gradient_by_taps(context: Context, geo: Geometry, g: Value, x: Value) -> str:
    """Tap by tap: the input shifted by the tap, contracted with the output's gradient.

    Returns (out, in, taps).
    """
    padded = _padded_nhwc(context, geo, x)
    taps = []
    for start, end in _taps(geo, g):
        shifted = _window(context, padded, start, end, geo.stride)
        shifted = context.reshape(shifted, -1, geo.channels_in)
        taps.append(_contract_tap(context, geo, g, shifted))
    return context.builder.add("Concat", *taps, axis=2)


def _kernel_gradient_by_overlaps(context: Context, geo: Geometry, g: Value, x: Value) -> str:
    """Tap by tap, as above, of the pixels that a tap reads: far taps read few of them.

    Padding the input for them would take many times its memory. Returns (out, in, taps).
    """
    zeros = np.zeros((geo.channels_out, geo.channels_in, 1), np.float32)
    taps = []
    for offsets in product(*(geo.offsets(axis) for axis in (0, 1))):
        sides = [
            (offset, stride, overlap(offset, stride, before, after))
            for offset, stride, before, after in zip(
                offsets, geo.stride, x.shape[2:], g.shape[2:], strict=True
            )
        ]
        if not all(outputs for *_, outputs in sides):
            taps.append(context.builder.constant(zeros))
            continue
        first = [outputs.start for *_, outputs in sides]
        last = [outputs.stop for *_, outputs in sides]
        start = [o.start * stride + offset for offset, stride, o in sides]
        end = [(o.stop - 1) * stride + offset + 1 for offset, stride, o in sides]
        read = _window(context, context.nhwc(x), start, end, geo.stride)
        given = _window(context, context.nhwc(g), first, last, (1, 1))
        rows = [
            context.reshape(given, -1, geo.channels_out),
            context.reshape(read, -1, geo.channels_in),
        ]
        tap = context.builder.add("Gemm", *rows, transA=1)
        taps.append(context.reshape(tap, geo.channels_out, geo.channels_in, 1))
    return context.builder.add("Concat", *taps, axis=2)


def _taps(geo: Geometry, g: Value) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """For each tap, the first and last corner of its window in the padded input."""
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.stride, geo.dilation
    down, across = (g.shape[2] - 1) * sh + 1, (g.shape[3] - 1) * sw + 1
    for top in range(0, kh * dh, dh):
        for left in range(0, kw * dw, dw):
            yield (top, left), (top + down, left + across)


def _convolved_kernel_gradient(context: Context, geo: Geometry, g: Value, x: Value) -> str:
    """One convolution, with the input's channels as its images and the images as its channels.

    Its kernel is the output's gradient. It takes fewer nodes than products by taps, and the runtime
    needs memory for each node. Returns (out, in / groups, kh, kw).
    """
    b, groups = context.builder, geo.groups
    inputs = geo.channels_in // groups
    images = context.reshape(context.plain(x), -1, groups, inputs, *x.shape[2:])
    images = b.add("Transpose", images, perm=[2, 1, 0, 3, 4])
    images = context.reshape(images, inputs, -1, *x.shape[2:])
    kernel = b.add("Transpose", context.plain(g), perm=[1, 0, 2, 3])
    found = b.add(
        "Conv",
        images,
        kernel,
        strides=list(geo.dilation),
        dilations=list(geo.stride),
        pads=list(geo.pads),
        group=groups,
    )
    found = _first_taps(context, geo, found, g, x)
    return b.add("Transpose", found, perm=[1, 0, 2, 3])


def _depthwise_kernel_gradient(context: Context, geo: Geometry, g: Value, x: Value) -> str:
    """One convolution: each plane of the batch with its own plane of the output's gradient.

    Returns (channels, 1, taps).
    """
    batch, channels = g.shape[:2]
    taps = geo.kernel[0] * geo.kernel[1]
    found = context.builder.add(
        "Conv",
        context.reshape(context.plain(x), 1, -1, *x.shape[2:]),
        context.reshape(context.plain(g), -1, 1, *g.shape[2:]),
        hint=KERNEL_GRADIENT if depthwise_hint(channels) else depthwise_hint(batch * channels),
        strides=list(geo.dilation),
        dilations=list(geo.stride),
        pads=list(geo.pads),
        group=batch * channels,
    )
    found = _first_taps(context, geo, found, g, x)
    total = _sum_leading(context, context.reshape(found, batch, channels, taps))
    return context.reshape(total, channels, 1, taps)


def _first_taps(context: Context, geo: Geometry, found: str, g: Value, x: Value) -> str:
    """Cut off the rows and columns that a stride leaves over at the end, if any."""
    top, left, bottom, right = geo.pads
    padded = (x.shape[2] + top + bottom, x.shape[3] + left + right)
    taps = tuple(
        side - (outputs - 1) * stride
        for side, outputs, stride in zip(padded, g.shape[2:], geo.stride, strict=True)
    )
    reached = tuple((k - 1) * d + 1 for k, d in zip(geo.kernel, geo.dilation, strict=True))
    if taps == reached:
        return found
    return _window(context, found, (0, 0), geo.kernel, (1, 1), axes=(2, 3))


def _contract_tap(context: Context, geo: Geometry, g: Value, shifted: str) -> str:
    """One tap of the kernel's gradient, (out, in, 1)."""
    tap = context.builder.add("Gemm", context.rows(g), shifted, transA=1)
    return context.reshape(tap, geo.channels_out, geo.channels_in, 1)


def _padded_nhwc(context: Context, geo: Geometry, x: Value) -> str:
    top, left, bottom, right = geo.pads
    nhwc = context.nhwc(x)
    if not any(geo.pads):
        return nhwc
    pads = context.builder.constant([0, top, left, 0, 0, bottom, right, 0])
    return context.builder.add("Pad", nhwc, pads)


def _window(
    context: Context,
    tensor: str,
    start: Sequence[int],
    end: Sequence[int],
    step: Sequence[int],
    axes: Sequence[int] = (1, 2),
) -> str:
    arguments = [context.builder.constant(v) for v in (start, end, axes, step)]
    return context.builder.add("Slice", tensor, *arguments)


def _sum_leading(context: Context, name: str) -> str:
    return context.builder.add("ReduceSum", name, context.builder.constant([0]), keepdims=0)
