"""Linear maps along each side of a feature map: upsampling, padding by pixels, their gradients.

Whatever treats rows and columns alike and apart is `A X B^T` with constant matrices, and its
gradient `A^T G B`: exact, and a product that every runtime does well. The gradient of a border goes
where its pixels came from, by a matrix of ones and zeros.
"""

import numpy as np
import torch
from torch import Tensor, fx
from torch.nn import functional

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


# ---- padding by reflection and by replication

_REFLECTION = (aten.reflection_pad2d.default, aten.reflection_pad2d_backward.default)
_REPLICATION = (aten.replication_pad2d.default, aten.replication_pad2d_backward.default)


@lowers(_REFLECTION[0], _REPLICATION[0])
def _pad(context: Context, node: fx.Node, x: Value, padding: list[int]) -> Value:
    left, right, top, bottom = padding
    pads = context.builder.constant(np.array([0, 0, top, left, 0, 0, bottom, right]))
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
    """(`size`, padded size): which pixels each pixel has become."""
    return functional.pad(torch.eye(size), (before, after), mode=mode)
