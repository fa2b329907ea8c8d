"""Linear maps along each side of a map: bilinear upsampling, average pooling, their gradients.

Whatever treats rows and columns alike and apart is `A X B^T` with constant matrices, and its
gradient `A^T G B`: exact, and a product that every runtime does well.
"""

import numpy as np
import torch
from torch import Tensor, fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value
from pocketune.compiler.passes.program import shape_of

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


@lowers(aten.upsample_bilinear2d.default)
def _upsample(
    context: Context,
    node: fx.Node,
    x: Value,
    size: list[int],
    align_corners: bool,
    *scales: float | None,
) -> Value:
    matrices = _interpolation(x.shape, size, align_corners, *scales)
    return resample(context, x, *matrices, shape_of(node))


@lowers(aten.upsample_bilinear2d_backward.default)
def _upsample_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    size: list[int],
    input_size: list[int],
    align_corners: bool,
    *scales: float | None,
) -> Value:
    vertical, horizontal = _interpolation(tuple(input_size), size, align_corners, *scales)
    return resample(context, g, vertical.T, horizontal.T, shape_of(node))


def _interpolation(
    shape: tuple[int, ...],
    size: list[int],
    align_corners: bool,
    vertical: float | None = None,
    horizontal: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Weights of each side's old pixels in its new ones: PyTorch's own, of the identity."""

    def weights(old: int, new: int, scale: float | None) -> Tensor:
        image = torch.eye(old).view(old, 1, old, 1)
        resized: Tensor = aten.upsample_bilinear2d(image, [new, 1], align_corners, scale, None)
        return resized.view(old, new).T

    return weights(shape[2], size[0], vertical), weights(shape[3], size[1], horizontal)
