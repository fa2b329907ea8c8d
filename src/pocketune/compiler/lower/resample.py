"""Pooling, resizing and padding of feature maps, and their gradients.

An operator that treats rows and columns alike and separately is `A X B^T` with constant matrices.
Its gradient is `A^T G B`, which is exact, and every runtime computes such products fast. For a
padding by pixels, ones in the matrices carry the gradient of the border back to the pixels that
were copied there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.nn import functional

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.errors import PocketuneError

aten = torch.ops.aten


def resample(
    context: Context, x: Value, vertical: Tensor, horizontal: Tensor, shape: tuple[int, ...]
) -> Value:
    """Map (N, C, H, W) to (N, C, H', W') by matrices (H', H) and (W', W)."""
    b = context.builder
    if context.in_rows(x):
        matrix = b.constant(np.kron(vertical.numpy(), horizontal.numpy()))
        stack = context.reshape(context.rows(x), -1, x.pixels, x.shape[1])
        return Value(shape, rows=context.reshape(b.add("MatMul", matrix, stack), -1, shape[1]))
    name = context.plain(x)
    above, beside = b.constant(vertical.numpy()), b.constant(horizontal.T.numpy())
    if vertical.shape[0] > vertical.shape[1]:  # the smaller result first
        return Value(shape, plain=b.add("MatMul", above, b.add("MatMul", name, beside)))
    return Value(shape, plain=b.add("MatMul", b.add("MatMul", above, name), beside))


_RESIZES: dict[Any, Any] = {
    aten.upsample_bilinear2d_backward.default: aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d_backward.default: aten.upsample_bicubic2d.default,
    aten._upsample_bilinear2d_aa_backward.default: aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa_backward.default: aten._upsample_bicubic2d_aa.default,
    aten.upsample_nearest2d_backward.default: aten.upsample_nearest2d.default,
    aten._upsample_nearest_exact2d_backward.default: aten._upsample_nearest_exact2d.default,
}
"""Operators that resize maps, by those of their gradients."""

_NEAREST = (aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default)
"""Those without the option `align_corners`."""


@lowers(*_RESIZES.values())
def _upsample(context: Context, node: fx.Node, x: Value, size: list[int], *options: Any) -> Value:
    matrices = _interpolation(node.target, x.shape, size, options)
    return resample(context, x, *matrices, shape_of(node))


@lowers(*_RESIZES)
def _upsample_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    size: list[int],
    input_size: list[int],
    *options: Any,
) -> Value:
    resize = _RESIZES[node.target]
    vertical, horizontal = _interpolation(resize, tuple(input_size), size, options)
    return resample(context, g, vertical.T, horizontal.T, shape_of(node))


def _interpolation(
    resize: Any, shape: tuple[int, ...], size: list[int], options: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """Weights of the old pixels in the new ones along each side: PyTorch's, for the identity.

    `options` are `align_corners`, if the operator has it, and the scales, if they are given.
    """
    flags = 0 if resize in _NEAREST else 1
    scales = (*options[flags:], None, None)

    def weights(old: int, new: int, scale: float | None) -> Tensor:
        image = torch.eye(old).view(old, 1, 1, old)  # PyTorch antialiases a column wrongly
        resized: Tensor = resize(image, [1, new], *options[:flags], None, scale)
        return resized.view(old, new).T

    return weights(shape[2], size[0], scales[0]), weights(shape[3], size[1], scales[1])


@lowers(aten._adaptive_avg_pool2d.default)
def _adaptive_pool(context: Context, node: fx.Node, x: Value, size: list[int]) -> Value:
    return resample(context, x, *_adaptive_averages(x.shape, size), shape_of(node))


@lowers(aten._adaptive_avg_pool2d_backward.default)
def _adaptive_pool_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    vertical, horizontal = _adaptive_averages(x.shape, g.shape[2:])
    return resample(context, _laid_out_as(context, g, x), vertical.T, horizontal.T, x.shape)


def _laid_out_as(context: Context, g: Value, x: Value) -> Value:
    """The gradient of a mean in the layout of its map: one of class scores has no rows."""
    if g.pixels > 1 or context.in_rows(x):
        return g
    return Value(g.shape, plain=context.plain(g))


def _adaptive_averages(shape: tuple[int, ...], size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The means along each side, of windows that may overlap: PyTorch's, for the identity."""

    def means(old: int, new: int) -> Tensor:
        return functional.adaptive_avg_pool2d(torch.eye(old).view(old, 1, -1, 1), (new, 1))

    down, across = (means(old, new).flatten(1).T for old, new in zip(shape[2:], size, strict=True))
    return down, across


# ---- padding by reflection and by replication

_REFLECTION = (aten.reflection_pad2d.default, aten.reflection_pad2d_backward.default)
_REPLICATION = (aten.replication_pad2d.default, aten.replication_pad2d_backward.default)


@lowers(_REFLECTION[0], _REPLICATION[0])
def _pad(context: Context, node: fx.Node, x: Value, padding: list[int]) -> Value:
    left, right, top, bottom = padding
    pads = context.builder.constant([0, 0, top, left, 0, 0, bottom, right])
    mode = "reflect" if node.target in _REFLECTION else "edge"
    name = context.builder.add("Pad", context.plain(x), pads, mode=mode)
    return Value(shape_of(node), plain=name)


@lowers(_REFLECTION[1], _REPLICATION[1])
def _pad_backward(context: Context, node: fx.Node, g: Value, x: Value, padding: list[int]) -> Value:
    mode = "reflect" if node.target in _REFLECTION else "replicate"
    left, right, top, bottom = padding
    vertical = _borders(x.shape[2], top, bottom, mode)
    return resample(context, g, vertical, _borders(x.shape[3], left, right, mode), x.shape)


def _borders(size: int, before: int, after: int, mode: str) -> Tensor:
    """(`size`, padded size): the padded pixels that each pixel is copied to."""
    return functional.pad(torch.eye(size), (before, after), mode=mode)


def _attributes(kernel: list[int], stride: list[int], padding: list[int]) -> dict[str, Any]:
    pads = [padding[0], padding[-1]] * 2
    stride = stride or kernel
    return {
        "kernel_shape": [kernel[0], kernel[-1]],
        "strides": [stride[0], stride[-1]],
        "pads": pads,
    }


@lowers(aten.max_pool2d_with_indices.default)
def _max_pool(
    context: Context,
    node: fx.Node,
    x: Value,
    kernel: list[int],
    stride: list[int] = [],  # noqa: B006 - as the operator's schema has it
    padding: list[int] = [0],  # noqa: B006
    dilation: list[int] = [1],  # noqa: B006
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    shape = tuple(node.meta["val"][0].shape)
    attributes = {
        **_attributes(kernel, stride, padding),
        "dilations": [dilation[0], dilation[-1]],
        "ceil_mode": int(ceil_mode),
    }
    y, indices = context.builder.add_many("MaxPool", [context.plain(x)], 2, **attributes)
    return Value(shape, plain=y), Value(shape, plain=indices)


@lowers(aten.max_pool2d_with_indices_backward.default)
def _max_pool_backward(context: Context, node: fx.Node, g: Value, x: Value, *args: object) -> Value:
    """Add every gradient at the position of its maximum; windows may overlap.

    ONNX numbers the positions over the whole tensor.
    """
    b, indices = context.builder, args[-1]
    assert isinstance(indices, Value)
    if g.pixels == 1:  # without the number of channels, which may be that of the classes
        within = b.add("Mod", context.plain(indices), b.constant(x.pixels))
        places = b.constant(np.arange(x.pixels).reshape(x.shape[2:]))
        is_place = b.add("Equal", within, places)
        return Value(x.shape, plain=b.add("Where", is_place, context.plain(g), b.constant(0.0)))
    size = int(np.prod(x.shape))
    zeros = b.add("Expand", b.constant(0.0), b.constant([size]))
    flat_indices = context.reshape(context.plain(indices), -1)
    flat_g = context.reshape(context.plain(g), -1)
    flat = b.add("ScatterElements", zeros, flat_indices, flat_g, axis=0, reduction="add")
    return Value(shape_of(node), plain=context.reshape(flat, *x.shape))


@lowers(aten.avg_pool2d.default)
def _average_pool(context: Context, node: fx.Node, x: Value, *window: Any) -> Value:
    size = (x.shape[2], x.shape[3])
    return resample(context, x, *_averages(size, *window), shape_of(node))


@lowers(aten.avg_pool2d_backward.default)
def _average_pool_backward(
    context: Context, node: fx.Node, g: Value, x: Value, *window: Any
) -> Value:
    vertical, horizontal = _averages((x.shape[2], x.shape[3]), *window)
    return resample(context, _laid_out_as(context, g, x), vertical.T, horizontal.T, x.shape)


def _averages(
    size: tuple[int, int],
    kernel: list[int],
    stride: list[int] = [],  # noqa: B006
    padding: list[int] = [0],  # noqa: B006
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The means along each side as a matrix: PyTorch's pooling of the identity."""
    if divisor_override is not None:
        raise PocketuneError(
            "an average pool with divisor_override cannot be compiled; leave it at None"
        )
    stride = stride or kernel

    def means(axis: int) -> Tensor:
        return functional.avg_pool2d(
            torch.eye(size[axis]).view(size[axis], 1, -1, 1),
            (kernel[axis % len(kernel)], 1),
            (stride[axis % len(stride)], 1),
            (padding[axis % len(padding)], 0),
            ceil_mode,
            count_include_pad,
        ).flatten(1)

    return means(0).T, means(1).T
