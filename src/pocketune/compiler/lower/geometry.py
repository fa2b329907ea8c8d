"""The geometry of a convolution, and its forward pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pocketune.compiler.lower.context import Context
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.blocked import DEPTHWISE, LARGEST_BLOCK
from pocketune.errors import PocketuneError


@dataclass(frozen=True)
class Geometry:
    """Geometry of one convolution; pads are (top, left, bottom, right)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    channels_in: int
    channels_out: int

    @property
    def pointwise(self) -> bool:
        """A matrix product over channels."""
        return (
            self.kernel == (1, 1)
            and self.stride == (1, 1)
            and self.groups == 1
            and not any(self.pads)
        )

    @property
    def depthwise(self) -> bool:
        """A kernel of its own for every channel."""
        return self.groups == self.channels_in == self.channels_out

    @property
    def padded_by_less_than_kernel(self) -> bool:
        """Whether every window holds an element of the input."""
        extents = [(k - 1) * d for k, d in zip(self.kernel, self.dilation, strict=True)]
        return all(pad <= extent for pad, extent in zip(self.pads, extents * 2, strict=True))

    @property
    def turned_pads(self) -> list[int]:
        """Pads of the gradient's convolution with the turned kernel, for stride 1."""
        vertical, horizontal = (
            (k - 1) * d for k, d in zip(self.kernel, self.dilation, strict=True)
        )
        top, left, bottom, right = self.pads
        return [vertical - top, horizontal - left, vertical - bottom, horizontal - right]

    def offsets(self, axis: int) -> range:
        """Of the taps along an axis, from the pixel of an output to that which a tap reads."""
        first, dilation = -self.pads[axis], self.dilation[axis]
        return range(first, first + self.kernel[axis] * dilation, dilation)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the ONNX operators Conv and ConvTranspose.

        Defaults are left out: the runtime needs a kilobyte for each attribute.
        """
        given = {
            "strides": list(self.stride),
            "pads": list(self.pads),
            "dilations": list(self.dilation),
            "group": self.groups,
        }
        return {key: value for key, value in given.items() if value not in (1, [1, 1], [0] * 4)}


def pair(values: list[int]) -> tuple[int, int]:
    """Of rows and columns, from one or two numbers."""
    return (values[0], values[-1])


def geometry(
    channels_in: int,
    w: Value,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    pads: tuple[int, int, int, int] | None = None,
) -> Geometry:
    """Read the arguments of `aten.convolution`; `pads` includes a padding folded into it.

    Raises:
        PocketuneError: The convolution is not of two dimensions.
    """
    if len(w.shape) != 4:
        raise PocketuneError("only convolutions of one or two dimensions can be compiled")
    vertical, horizontal = pair(padding)
    return Geometry(
        kernel=(w.shape[2], w.shape[3]),
        stride=pair(stride),
        pads=pads or (vertical, horizontal, vertical, horizontal),
        dilation=pair(dilation),
        groups=groups,
        channels_in=channels_in,
        channels_out=w.shape[0],
    )


class Reached(NamedTuple):
    """The taps of a kernel whose windows meet the input, and the convolution by them alone.

    Attributes:
        geo: Of this convolution.
        first: The first of these taps, in rows and columns.
        left_over: How many taps follow the last one, in rows and columns.
    """

    geo: Geometry
    first: tuple[int, int]
    left_over: tuple[int, int]

    def crop(self, context: Context, w: Value) -> Value:
        """These taps of a kernel."""
        if not any((*self.first, *self.left_over)):
            return w
        (top, left), (height, width) = self.first, self.geo.kernel
        shape = (*w.shape[:2], height, width)
        if w.constant is not None:
            kept = w.constant[:, :, top : top + height, left : left + width]
            return Value(shape, constant=kept.contiguous())
        bounds = ([top, left], [top + height, left + width], [2, 3])
        names = [context.builder.constant(bound) for bound in bounds]
        return Value(shape, plain=context.builder.add("Slice", context.plain(w), *names))

    def grow(self, context: Context, gradient: Value) -> Value:
        """The gradient of the whole kernel: zeros for the other taps."""
        if not any((*self.first, *self.left_over)):
            return gradient
        pads = context.builder.constant([0, 0, *self.first, 0, 0, *self.left_over])
        name = context.builder.add("Pad", context.plain(gradient), pads)
        sides = zip(self.geo.kernel, self.first, self.left_over, strict=True)
        return Value((*gradient.shape[:2], *map(sum, sides)), plain=name)


def reached(geo: Geometry, x: tuple[int, ...], y: tuple[int, ...]) -> Reached:
    """The taps that read anything of an input (..., H, W) for an output of this shape.

    On small maps, the outer taps of a kernel that is dilated as in ASPP see nothing but padding.
    """
    sides = [_reached(geo, axis, x[axis - 2], y[axis - 2]) for axis in (0, 1)]
    (top, height), (left, width) = sides
    below, right = geo.kernel[0] - top - height, geo.kernel[1] - left - width
    (down, across), pads = geo.dilation, geo.pads
    kept = (
        pads[0] - top * down,
        pads[1] - left * across,
        pads[2] - below * down,
        pads[3] - right * across,
    )
    if min(kept) < 0:
        return Reached(geo, (0, 0), (0, 0))
    return Reached(replace(geo, kernel=(height, width), pads=kept), (top, left), (below, right))


def _reached(geo: Geometry, axis: int, before: int, after: int) -> tuple[int, int]:
    """The first tap that is reached along an axis, and how many are."""
    count, stride = geo.kernel[axis], geo.stride[axis]
    if geo.dilation[axis] == 1:
        return 0, count
    offsets = enumerate(geo.offsets(axis))
    taps = [tap for tap, offset in offsets if overlap(offset, stride, before, after)]
    return (taps[0], taps[-1] + 1 - taps[0]) if taps else (0, count)


def overlap(offset: int, stride: int, before: int, after: int) -> range:
    """The outputs of `after` for which a tap at this offset reads one of `before` inputs."""
    first = max(0, -(offset // stride))
    last = (before - 1 - offset) // stride
    return range(first, min(last + 1, after))


def convolve(
    context: Context,
    geo: Geometry,
    x: Value,
    w: Value,
    bias: Value | None,
    shape: tuple[int, ...],
) -> Value:
    """The convolution's output, of this shape."""
    biases = [context.plain(bias)] if bias is not None else []
    if geo.pointwise and context.prefers_rows(x) and not w.open:
        matrix = kernel_matrix(context, w)
        rows = context.builder.add("Gemm", context.rows(x), matrix, *biases, transB=1)
        return Value(shape, rows=rows)
    hint = depthwise_hint(geo.groups) if geo.depthwise else None
    inputs = (context.plain(x), context.plain(w), *biases)
    name = context.builder.add("Conv", *inputs, hint=hint, **geo.attributes)
    output = Value(shape, plain=name)
    return in_preferred_layout(context, output) if geo.depthwise else output


def in_preferred_layout(context: Context, depthwise: Value) -> Value:
    """The output of a depthwise convolution, as rows where operators should work on rows.

    Blocks convert to rows as fast as to PyTorch's layout, which is then never made.
    """
    if not context.prefers_rows(depthwise):
        return depthwise
    return Value(depthwise.shape, rows=context.rows(depthwise))


def depthwise_hint(channels: int) -> str | None:
    """Name for a node that the device may compute in blocks, if the channels fill them."""
    return DEPTHWISE if channels % LARGEST_BLOCK == 0 else None


def kernel_matrix(context: Context, w: Value) -> str:
    """The kernel of a 1x1 convolution as (out, in)."""
    if w.constant is not None:
        return context.builder.constant(w.constant.flatten(1).numpy())
    return context.reshape(context.plain(w), *w.shape[:2])
