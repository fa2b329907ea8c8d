"""Max and average pooling and their gradients."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.nn import functional

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.resample import resample
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of
from pocketune.errors import PocketuneError

aten = torch.ops.aten


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
    """Add every gradient to where its maximum was: windows overlap, so an element may get several.

    ONNX numbers the positions over the whole tensor.
    """
    b, indices = context.builder, args[-1]
    assert isinstance(indices, Value)
    size = int(np.prod(x.shape))
    zeros = b.add("Expand", b.constant(0.0), b.constant(np.array([size])))
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
    return resample(context, g, vertical.T, horizontal.T, x.shape)


def _averages(
    size: tuple[int, int],
    kernel: list[int],
    stride: list[int] = [],  # noqa: B006
    padding: list[int] = [0],  # noqa: B006
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The means along each side as a matrix: PyTorch's own of an image of the identity."""
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
