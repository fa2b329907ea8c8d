"""Batch norms with batch statistics, without ONNX's own node.

ONNX Runtime executes that node on one thread, and its WebGPU, tract and MNN refuse it.

Maps in rows are small. Their mean is taken off first, and the backward pass reads the difference.
Other maps that no convolution makes, such as features, get a difference for each pass.

Of the maps of a convolution, the mean and the mean of squares are found in one pass each over the
map. In float32 their difference cancels where the mean is large against the deviation. So the
convolution before the norm subtracts the running mean as its bias, which costs nothing: what is
left of the mean is small, and the norm's output is the same. Sums of products over the pixels of a
channel are convolutions of one map with the other, each plane a kernel as large as its image, so
that no map of products is written. `x * scale + offset` is a depthwise convolution of 1 x 1.
"""

from collections.abc import Sequence

import torch
from torch import fx

from pocketune.compiler.lower.context import Context
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.reduce import channel_sum
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.activations import NORMALIZED

aten = torch.ops.aten


def center_of(context: Context, node: fx.Node) -> str | None:
    """The running mean of the norm with batch statistics that alone reads a convolution."""
    forward = [user for user in node.users if user.target is aten.native_batch_norm.default]
    backward = aten.native_batch_norm_backward.default
    if len(forward) != 1 or any(u.target is not backward for u in node.users if u not in forward):
        return None
    (norm,) = forward
    x, *_, mean, _, training = norm.args[:6]
    if not training or x is not node or not isinstance(mean, fx.Node):
        return None
    value = context.values.get(mean)
    return None if value is None else context.plain(value)


def statistics(context: Context, x: Value) -> tuple[Value, Value]:
    """Mean and biased variance of every channel."""
    share = 1 / (x.shape[0] * x.pixels)

    def average(total: Value) -> Value:
        return elementwise(context, "Mul", [total, share])

    mean = average(channel_sum(context, x))
    if x.center is None:
        apart = difference(context, x, mean, kept=context.in_rows(x))
        return mean, average(product_sum(context, apart, apart))
    squared = elementwise(context, "Mul", [mean, mean])
    square = average(product_sum(context, x, x))
    variance = elementwise(context, "Sub", [square, squared])
    return mean, elementwise(context, "Max", [variance, 0.0])


def difference(context: Context, x: Value, mean: Value, *, kept: bool = True) -> Value:
    """`x - mean` per channel; computed again where it is read if it is not to be kept."""
    return elementwise(context, "Sub", [x, per_channel(context, mean)], shared=kept)


def per_channel(context: Context, value: Value) -> Value:
    """A vector (C,) viewed as (1, C, 1, 1)."""
    shape = (1, value.shape[0], 1, 1)
    if value.constant is not None:
        return Value(shape, constant=value.constant.view(shape))
    return Value(shape, vector=context.plain(value))


def product_sum(context: Context, a: Value, b: Value) -> Value:
    """Sum of `a * b` over the batch and the pixels of every channel, (C,)."""
    if context.in_rows(a) or context.in_rows(b):
        return channel_sum(context, elementwise(context, "Mul", [a, b]))
    images, channels, *sides = a.shape
    planes = images * channels
    sums = context.builder.add(
        "Conv",
        context.reshape(context.plain(a), 1, planes, *sides),
        context.reshape(context.plain(b), planes, 1, *sides),
        group=planes,
    )
    rows = Value((images, channels, 1, 1), rows=context.reshape(sums, images, channels))
    return channel_sum(context, rows)


def normalize(context: Context, x: Value, mean: Value, scale: Value, bias: Value) -> Value:
    """`(x - mean) * scale + bias` per channel."""
    if context.in_rows(x):
        rows = context.rows(difference(context, x, mean))
        scaled = context.builder.add("Mul", rows, context.plain(scale), hint=NORMALIZED)
        return Value(x.shape, rows=context.builder.add("Add", scaled, context.plain(bias)))
    moved = elementwise(context, "Mul", [mean, scale])
    offset = elementwise(context, "Sub", [bias, moved])
    return affine(context, x, scale, offset, NORMALIZED)


def affine(
    context: Context, x: Value, scale: Value, offset: Value | None, hint: str | None = None
) -> Value:
    """`x * scale + offset` per channel of a map that is not in rows, by a node of this name."""
    channels = x.shape[1]
    kernel = context.reshape(context.plain(scale), channels, 1, 1, 1)
    offsets = [] if offset is None else [context.plain(offset)]
    name = context.builder.add(
        "Conv", context.plain(x), kernel, *offsets, hint=hint, group=channels
    )
    return Value(x.shape, plain=name)


def input_gradient(
    context: Context, g: Value, x: Value, scale: Value, slope: Value, offset: Value
) -> Value:
    """`g * scale + x * slope + offset` per channel."""
    parts = [affine(context, g, scale, None), affine(context, x, slope, offset)]
    return elementwise(context, "Add", parts)


def inverse_root(context: Context, variance: Value, eps: float) -> Value:
    """`1 / sqrt(variance + eps)`."""
    shifted = elementwise(context, "Add", [variance, eps])
    root = elementwise(context, "Sqrt", [shifted])
    return elementwise(context, "Reciprocal", [root])


def update_statistics(
    context: Context,
    running: Sequence[object],
    batch: tuple[Value, Value],
    momentum: float,
    count: int,
) -> None:
    """Update the running mean and variance of a norm by those of `count` elements a channel.

    A norm that is called several times in a step continues from its previous call's; one without
    running statistics has nothing to update. PyTorch's running variance is the unbiased one.
    """
    b = context.builder
    for node, new, correction in zip(running, batch, (1.0, count / (count - 1)), strict=True):
        if isinstance(node, fx.Node):
            before = context.statistics.get(node, context.plain(context.value(node)))
            kept = b.add("Mul", before, b.constant(1 - momentum))
            fresh = elementwise(context, "Mul", [new, momentum * correction])
            context.statistics[node] = b.add("Add", kept, context.plain(fresh))
