"""A 1x1 convolution and the norm with batch statistics behind it, in one.

The statistics of a product follow from those of its input. With `m` the mean of the K channels of
`x` over all n pixels of the batch, and `C = (x - m) (x - m)^T / n` their covariance, channel `i` of
`W x` has the mean `w_i m` and the variance `w_i C w_i^T`. So the scale of the norm is known before
the product is computed, and becomes part of the kernel:

    y = (s W) (x - m) + bias        s = weight / sqrt(diag(W C W^T) + eps)

The gradients follow in the same way from `G = g (x - m)^T`, which the gradient of the kernel
needs anyway:

    dbias   = sum(g)
    dweight = diag(W G^T) / sqrt(diag(W C W^T) + eps)
    dW      = s (G - r W C)         r = dweight / sqrt(diag(W C W^T) + eps)
    dx      = (s W)^T g - W^T (s r / n W) (x - m) - W^T (s dbias / n)

Without this, a norm and its gradient read or write the map of `W x` a dozen times. In inverted
residual blocks it is six times as wide as `x`, and most of the memory traffic of a step.
"""

from __future__ import annotations

from dataclasses import replace

from torch import fx

from pocketune.compiler.lower.centered import (
    difference,
    inverse_root,
    update_statistics,
)
from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.conv import input_gradient
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.geometry import Geometry, convolve, geometry, kernel_matrix
from pocketune.compiler.lower.kernel_gradient import kernel_gradient
from pocketune.compiler.lower.reduce import channel_sum
from pocketune.compiler.lower.value import Value, Widened
from pocketune.compiler.passes.wide_norms import wide_norm, wide_norm_backward


@lowers(wide_norm)
def _wide_norm(
    context: Context,
    node: fx.Node,
    x: Value,
    kernel: Value,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Value:
    geo = geometry(x.shape[1], kernel, [1], [0], [1], 1)
    count = x.shape[0] * x.pixels
    mean = elementwise(context, "Mul", [channel_sum(context, x), 1 / count])
    x = difference(context, x, mean)
    products = _channel_products(context, geo, x)
    covariance = context.builder.add("Mul", products, context.builder.constant(1 / count))
    matrix = kernel_matrix(context, kernel)
    spread = context.builder.add("MatMul", matrix, covariance, shared=False)
    variance = Value(kernel.shape[:1], plain=_row_products(context, spread, matrix))
    variance = elementwise(context, "Max", [variance, 0.0])
    inverse = inverse_root(context, variance, eps)
    scale = elementwise(context, "Mul", [weight, inverse])
    whole = Value(variance.shape, plain=context.builder.add("MatMul", matrix, context.plain(mean)))
    update_statistics(context, node.args[4:6], (whole, variance), momentum, count)
    shape = (x.shape[0], kernel.shape[0], *x.shape[2:])
    y = convolve(context, geo, x, _scaled(context, kernel, scale), bias, shape)
    return replace(y, saved=Widened(x, kernel, covariance, inverse, scale))


@lowers(wide_norm_backward)
def _wide_norm_backward(
    context: Context, node: fx.Node, g: Value, y: Value
) -> tuple[Value, Value, Value, Value]:
    kept = y.saved
    assert isinstance(kept, Widened)
    x, kernel, inverse, scale = kept.x, kept.kernel, kept.inverse, kept.scale
    geo = geometry(x.shape[1], kernel, [1], [0], [1], 1)
    b, matrix = context.builder, kernel_matrix(context, kernel)
    share = -1 / (x.shape[0] * x.pixels)

    def times(a: Value, other: Value | float) -> Value:
        return elementwise(context, "Mul", [a, other])

    total = channel_sum(context, g)
    product = kernel_matrix(context, kernel_gradient(context, geo, g, x, kernel))
    dweight = times(Value(scale.shape, plain=_row_products(context, product, matrix)), inverse)
    slope = times(dweight, inverse)
    spread = b.add("MatMul", matrix, kept.covariance, shared=False)
    shifted = b.add("Sub", product, _scale_rows(context, spread, slope))
    dkernel = _as_kernel(context, _scale_rows(context, shifted, scale), kernel.shape)

    falling = times(scale, share)
    sloped = _scale_rows(context, matrix, times(slope, falling))
    inputs = geo.channels_in
    square = _as_kernel(context, b.add("Gemm", matrix, sloped, transA=1), (inputs, inputs, 1, 1))
    offset = b.add("MatMul", context.plain(times(total, falling)), matrix)
    parts = [
        input_gradient(context, geo, g, x, _scaled(context, kernel, scale)),
        convolve(context, _narrow(geo), x, square, Value(x.shape[1:2], plain=offset), x.shape),
    ]
    return elementwise(context, "Add", parts), dkernel, dweight, total


def _narrow(geo: Geometry) -> Geometry:
    """Of a convolution from the input's channels to as many."""
    return replace(geo, channels_out=geo.channels_in)


def _channel_products(context: Context, geo: Geometry, x: Value) -> str:
    """The products of every two channels, summed over the batch and the pixels, (K, K)."""
    shape = Value((geo.channels_in, geo.channels_in, 1, 1))
    return kernel_matrix(context, kernel_gradient(context, _narrow(geo), x, x, shape))


def _row_products(context: Context, a: str, b: str) -> str:
    """The dot product of each row of a matrix with that of another."""
    rows = context.builder.add("Mul", a, b)
    axis = context.builder.constant([1])
    return context.builder.add("ReduceSum", rows, axis, keepdims=0)


def _scaled(context: Context, kernel: Value, scale: Value) -> Value:
    """The kernel with a scale for each output."""
    scaled = _scale_rows(context, kernel_matrix(context, kernel), scale)
    return _as_kernel(context, scaled, kernel.shape)


def _scale_rows(context: Context, matrix: str, scale: Value) -> str:
    """Each row times a number; computed again where it is read, as a kept copy is a kernel more."""
    column = context.reshape(context.plain(scale), -1, 1)
    return context.builder.add("Mul", matrix, column, shared=False)


def _as_kernel(context: Context, matrix: str, shape: tuple[int, ...]) -> Value:
    return Value(shape, plain=context.reshape(matrix, *shape))
