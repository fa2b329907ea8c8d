"""Batch norm and its gradients.

With batch statistics it is composed of sums and products, see `pocketune.compiler.lower.centered`.
"""

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower import centered
from pocketune.compiler.lower.centered import per_channel
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.reduce import channel_sum
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


@lowers(aten.native_batch_norm.default)
def _batch_norm(
    context: Context,
    node: fx.Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    weight, bias = weight or _filled(context, x, 1.0), bias or _filled(context, x, 0.0)
    vectors, x = x, _as_map(context, x)
    if not training:
        inverse = centered.inverse_root(context, running_var, eps)
        difference = centered.difference(context, x, running_mean)
        scale = elementwise(context, "Mul", [inverse, weight])
        # constant ones, as in an exported model, become part of the convolution before them
        scaled = elementwise(context, "Mul", [difference, per_channel(context, scale)])
        y = elementwise(context, "Add", [scaled, per_channel(context, bias)])
        return _of_shape(context, y, vectors.shape), running_mean, inverse
    mean, variance = centered.statistics(context, x)
    inverse = centered.inverse_root(context, variance, eps)
    scale = elementwise(context, "Mul", [weight, inverse])
    y = centered.normalize(context, x, mean, scale, bias)
    whole = mean
    if x.center is not None:
        whole = elementwise(context, "Add", [mean, Value(mean.shape, plain=x.center)])
    centered.update_statistics(
        context, node.args[3:5], (whole, variance), momentum, x.shape[0] * x.pixels
    )
    return _of_shape(context, y, vectors.shape), mean, inverse


@lowers(aten.native_batch_norm_backward.default)
def _batch_norm_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value,
    running_var: Value,
    mean: Value,
    inverse: Value,
    training: bool,
    eps: float,
    needed: list[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    weight = weight or _filled(context, x, 1.0)
    vectors, x, g = x, _as_map(context, x), _as_map(context, g)
    total = channel_sum(context, g)
    scale = _times(context, weight, inverse)
    if x.center is not None:
        return *_centered_gradients(context, g, x, mean, inverse, scale, total), total
    kept = not training or context.in_rows(x)
    difference = centered.difference(context, x, mean, kept=kept)
    cross = channel_sum(context, elementwise(context, "Mul", [g, difference]))
    weight_gradient = _times(context, cross, inverse)
    input_gradient = elementwise(context, "Mul", [g, per_channel(context, scale)])
    if training:
        # dx = scale * (g - sum(g) / n - (x - mean) * inverse^2 * sum(g (x - mean)) / n)
        share = _times(context, scale, -1 / (x.shape[0] * x.pixels))
        slope = _times(context, weight_gradient, inverse, share)
        offset = _times(context, total, share)
        through_statistics = _affine(context, difference, slope, offset)
        input_gradient = elementwise(context, "Add", [input_gradient, through_statistics])
    return (
        _of_shape(context, input_gradient, vectors.shape) if needed[0] else None,
        weight_gradient if needed[1] else None,
        total if needed[2] else None,
    )


def _centered_gradients(
    context: Context, g: Value, x: Value, mean: Value, inverse: Value, scale: Value, total: Value
) -> tuple[Value, Value]:
    """The gradients of a map with a `center` and of the weight; `total` is the sum of `g`."""
    cross = centered.product_sum(context, g, x)
    cross = elementwise(context, "Sub", [cross, _times(context, mean, total)])
    weight_gradient = _times(context, cross, inverse)
    share = _times(context, scale, -1 / (x.shape[0] * x.pixels))
    slope = _times(context, weight_gradient, inverse, share)
    moved = [_times(context, total, share), _times(context, mean, slope)]
    offset = elementwise(context, "Sub", moved)
    return centered.input_gradient(context, g, x, scale, slope, offset), weight_gradient


def _times(context: Context, vector: Value, *factors: Value | float) -> Value:
    """Product of vectors with one number per channel."""
    for factor in factors:
        vector = elementwise(context, "Mul", [vector, factor])
    return vector


def _filled(context: Context, x: Value, number: float) -> Value:
    """What a norm without a weight or a bias has in its place, for each channel of `x`."""
    vector = np.full(x.shape[1], number, np.float32)
    return Value(vector.shape, plain=context.builder.constant(vector))


def _as_map(context: Context, x: Value) -> Value:
    """Vectors (N, C) as maps of one pixel, and (N, C, L) as maps one pixel wide."""
    if x.is_map:
        return x
    if len(x.shape) == 2:
        return Value((*x.shape, 1, 1), rows=context.plain(x))
    return Value((*x.shape, 1), plain=context.reshape(context.plain(x), -1, *x.shape[1:], 1))


def _of_shape(context: Context, x: Value, shape: tuple[int, ...]) -> Value:
    """The inverse of `_as_map`."""
    if x.shape == shape:
        return x
    if len(shape) == 2:
        return Value(shape, plain=context.rows(x))
    return Value(shape, plain=context.reshape(context.plain(x), -1, *shape[1:]))


def _affine(context: Context, x: Value, scale: Value, offset: Value) -> Value:
    """`x * scale + offset` per channel, in one pass over a map that is not in rows."""
    if context.in_rows(x) or x.expanded is not None:
        scaled = elementwise(context, "Mul", [x, per_channel(context, scale)])
        return elementwise(context, "Add", [scaled, per_channel(context, offset)])
    return centered.affine(context, x, scale, offset)
