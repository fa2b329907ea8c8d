"""Operators that select and move elements, as functions of fewer operators.

PyTorch's own decompositions of these lead to strides, to primitives below ATen, or to tensors of
indices. These functions keep the leading dimension, that of the images, where it is.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _transpose(x: Tensor, first: int, second: int) -> Tensor:
    if x.dim() == 2:
        return x.t() if (first - second) % 2 else x
    order = list(range(x.dim()))
    order[first], order[second] = order[second], order[first]
    return x.permute(order)


def _unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(x.select(dim, i) for i in range(x.shape[dim]))


def _split(x: Tensor, size: int, dim: int = 0) -> tuple[Tensor, ...]:
    whole = x.shape[dim]
    return tuple(
        x.narrow(dim, start, min(size, whole - start)) for start in range(0, max(whole, 1), size)
    )


def _split_with_sizes(x: Tensor, sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(x.narrow(dim, start, n) for start, n in zip(starts, sizes, strict=True))


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return torch.cat([x.unsqueeze(dim) for x in tensors], dim)


def _select_backward(g: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    index %= sizes[dim]
    placed: Tensor = aten.slice_backward(g.unsqueeze(dim), sizes, dim, index, index + 1, 1)
    return placed


def _roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims:
        return _roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        if moved := shift % size:
            x = torch.cat([x.narrow(dim, size - moved, moved), x.narrow(dim, 0, size - moved)], dim)
    return x


def _squeeze(x: Tensor) -> Tensor:
    return x.reshape([size for size in x.shape if size != 1])


def _pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    batch, channels, height, width = x.shape
    inner = channels // factor**2
    x = x.reshape(batch, inner, factor, factor, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, inner, height * factor, width * factor)


def _pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // factor, factor, width // factor, factor)
    x = x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(batch, channels * factor**2, height // factor, width // factor)


def _channel_shuffle(x: Tensor, groups: int) -> Tensor:
    batch, channels, *sizes = x.shape
    x = x.reshape(batch, groups, channels // groups, *sizes).transpose(1, 2)
    return x.reshape(batch, channels, *sizes)


def _nearest(x: Tensor, size: Sequence[int], *scales: float | None) -> Any:
    """Each pixel repeated; other factors than whole ones have no rule."""
    factors = _repeats(size, x.shape[2:], scales)
    if factors is None:
        return NotImplemented
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height, 1, width, 1)
    x = x.expand(batch, channels, height, factors[0], width, factors[1])
    return x.reshape(batch, channels, *size)


def _nearest_backward(
    g: Tensor, size: Sequence[int], shape: Sequence[int], *scales: float | None
) -> Any:
    factors = _repeats(size, shape[2:], scales)
    if factors is None:
        return NotImplemented
    height, width = shape[2:]
    return g.reshape(*shape[:2], height, factors[0], width, factors[1]).sum((3, 5))


def _repeats(
    size: Sequence[int], before: Sequence[int], scales: Sequence[float | None]
) -> list[int] | None:
    """How often the nearest pixel is repeated down and across, if each is equally often."""
    factors = [large // small for large, small in zip(size, before, strict=True)]
    whole = [n * small for n, small in zip(factors, before, strict=True)] == [*size]
    given = zip(scales, factors, strict=False)  # scales are left out where they are not given
    return factors if whole and all(s is None or s == n for s, n in given) else None


def _as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> Any:
    """A view of that tensor, which reads the elements between two strides as one dimension.

    Views that overlap, and those of a tensor with gaps, have no rule.
    """
    order = _by_stride(x.shape, x.stride())
    dims = _by_stride(size, stride)
    x = x.permute([*(dim for dim in range(x.dim()) if dim not in order), *order])
    if not x.is_contiguous():
        return NotImplemented
    steps = [x.numel(), *(stride[dim] for dim in dims), 1]
    if any(large % small for large, small in pairwise(steps)):
        return NotImplemented
    x = x.reshape([large // small for large, small in pairwise(steps)])
    counts = [*(size[dim] for dim in dims), 1]
    for i, (count, step) in enumerate(zip(counts, steps[1:], strict=True)):
        start, offset = divmod(offset, step)
        if start + count > x.shape[i]:
            return NotImplemented
        x = x.narrow(i, start, count)
    return x.squeeze(-1).permute([dims.index(dim) for dim in sorted(dims)]).reshape(size)


def _by_stride(size: Sequence[int], stride: Sequence[int]) -> list[int]:
    """Dimensions of more than one element, that of the largest stride first."""
    dims = [dim for dim, count in enumerate(size) if count > 1]
    return sorted(dims, key=lambda dim: -stride[dim])


MOVES: dict[Any, Callable[..., Any]] = {
    aten._upsample_nearest_exact2d.default: _nearest,
    aten._upsample_nearest_exact2d_backward.default: _nearest_backward,
    aten.as_strided.default: _as_strided,
    aten.channel_shuffle.default: _channel_shuffle,
    aten.pixel_shuffle.default: _pixel_shuffle,
    aten.pixel_unshuffle.default: _pixel_unshuffle,
    aten.roll.default: _roll,
    aten.select_backward.default: _select_backward,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.squeeze.default: _squeeze,
    aten.stack.default: _stack,
    aten.transpose.int: _transpose,
    aten.unbind.int: _unbind,
    aten.upsample_nearest2d.default: _nearest,
    aten.upsample_nearest2d_backward.default: _nearest_backward,
}
