"""Operators of single layers as arithmetic, and windows of maps as slices.

PyTorch's own decompositions of these lead to primitives below ATen, or to tensors of indices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten


def _log_sum_exp(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    dims = [*dims]
    largest = x.amax(dims, keepdim=True)
    total = (x - largest).exp().sum(dims, keepdim=keepdim).log()
    total += largest if keepdim else x.amax(dims)
    return total


def _lerp(start: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
    return start + weight * (end - start)


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (a / b)


def _hard_shrink(x: Tensor, limit: float = 0.5) -> Tensor:
    return torch.where(x.abs() <= limit, 0.0, x)


def _hard_shrink_backward(g: Tensor, x: Tensor, limit: float) -> Tensor:
    return torch.where(x.abs() <= limit, 0.0, g)


def _soft_shrink(x: Tensor, limit: float = 0.5) -> Tensor:
    return x - x.clamp(-limit, limit)


def _norm_of_all(x: Tensor, order: float = 2) -> Tensor:
    return _norm(x, order, range(x.dim()))


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Kernels of norms `g` in the directions of `v`, and the norms of `v`."""
    norms = _norm(v, 2, _others(v, dim), keepdim=True)
    return v * (g / norms), norms


def _weight_norm_backward(
    of_w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    of_g = (of_w * v).sum(_others(v, dim), keepdim=True) / norms
    return g / norms * (of_w - v * (of_g / norms)), of_g


def _others(x: Tensor, dim: int) -> list[int]:
    return [other for other in range(x.dim()) if other != dim % x.dim()]


def _norm(x: Tensor, order: float | None, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    norm: Tensor = aten.linalg_vector_norm(x, 2 if order is None else order, [*dims], keepdim)
    return norm


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """With the exponential that PyTorch's gradient reads."""
    small = (-x.abs()).exp()
    return -(1 + small).log() - (-x).relu(), small


def _log_sigmoid_backward(g: Tensor, x: Tensor, _: Tensor) -> Tensor:
    return g * (-x).sigmoid()


Pair = Sequence[int]


def _windows(x: Tensor, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """(N, C, H, W) -> (N, C x kernel pixels, windows): the pixels of each window, below another."""
    rows, columns = padding
    x = functional.pad(x, (columns, columns, rows, rows))
    places = _places(x.shape[2:], kernel, dilation, stride)
    pieces = [x[:, :, down, across] for down, across in places]
    return torch.stack(pieces, 2).reshape(x.shape[0], x.shape[1] * len(pieces), -1)


def _from_windows(
    x: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> Tensor:
    """The sum of windows in maps of this size: the transpose of `_windows`."""
    padded = [side + 2 * pad for side, pad in zip(size, padding, strict=True)]
    places = _places(padded, kernel, dilation, stride)
    channels = x.shape[1] // len(places)
    counts = [len(range(*part.indices(side))) for part, side in zip(places[0], padded, strict=True)]
    pieces = x.reshape(x.shape[0], channels, len(places), *counts).unbind(2)
    total: Tensor | None = None
    for piece, (down, across) in zip(pieces, places, strict=True):
        rows = aten.slice_backward(
            piece, [*piece.shape[:3], padded[1]], 3, across.start, across.stop, across.step
        )
        whole = aten.slice_backward(
            rows, [*piece.shape[:2], *padded], 2, down.start, down.stop, down.step
        )
        total = whole if total is None else total + whole
    assert total is not None
    return total[:, :, padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _places(size: Pair, kernel: Pair, dilation: Pair, stride: Pair) -> list[tuple[slice, slice]]:
    """For each pixel of a window, the rows and the columns where all windows have it."""
    counts = [
        (side - apart * (width - 1) - 1) // step + 1
        for side, width, apart, step in zip(size, kernel, dilation, stride, strict=True)
    ]

    def part(axis: int, pixel: int) -> slice:
        first = pixel * dilation[axis]
        return slice(first, first + stride[axis] * (counts[axis] - 1) + 1, stride[axis])

    return [(part(0, i), part(1, j)) for i in range(kernel[0]) for j in range(kernel[1])]


ARITHMETIC: dict[Any, Callable[..., Any]] = {
    aten._weight_norm_interface.default: _weight_norm,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.addcdiv.default: _addcdiv,
    aten.col2im.default: _from_windows,
    aten.hardshrink.default: _hard_shrink,
    aten.hardshrink_backward.default: _hard_shrink_backward,
    aten.im2col.default: _windows,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.logsumexp.default: _log_sum_exp,
    aten.norm.Scalar: _norm_of_all,
    aten.norm.ScalarOpt_dim: _norm,
    aten.softshrink.default: _soft_shrink,
    aten.softshrink_backward.default: _hard_shrink_backward,
}
