"""Operators that select, move and average elements, as functions of fewer operators.

PyTorch's own decompositions of these lead to strides, to primitives below ATen, or to tensors of
indices. These functions keep the leading dimension, that of the images, where it is.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
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


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return torch.where(mask, torch.as_tensor(value, dtype=x.dtype), x)


def _clamp(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _full_like(x: Tensor, value: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """The value for each element of a tensor; the number of images, which is open, is that of x."""
    filling = torch.as_tensor(value, dtype=dtype or x.dtype)
    return torch.where(x == x, filling, filling)


def _zero(x: Tensor) -> Tensor:
    return _full_like(x, 0)


def _ones_like(x: Tensor, **options: Any) -> Tensor:
    return _full_like(x, 1, **options)


def _zeros_like(x: Tensor, **options: Any) -> Tensor:
    return _full_like(x, 0, **options)


def _average(x: Tensor, **options: Any) -> Tensor:
    return x.mean(list(range(x.dim())), **options)


def _total(x: Tensor, **options: Any) -> Tensor:
    return x.sum(list(range(x.dim())), **options)


def _squeeze(x: Tensor) -> Tensor:
    return x.reshape([size for size in x.shape if size != 1])


def _variance(
    x: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    dims = [*(dim or range(x.dim()))]
    count = prod(x.shape[each] for each in dims)
    centered = x - x.mean(dims, keepdim=True)
    total = (centered * centered).sum(dims, keepdim=keepdim)
    return total / max(count - (1 if correction is None else correction), 0)


def _deviation(x: Tensor, dim: Sequence[int] | None = None, **options: Any) -> Tensor:
    return _variance(x, dim, **options).sqrt()


def _variance_and_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, keepdim: bool = False, **options: Any
) -> tuple[Tensor, Tensor]:
    dims = [*(dim or range(x.dim()))]
    return _variance(x, dims, keepdim=keepdim, **options), x.mean(dims, keepdim=keepdim)


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


def _full(
    x: Tensor, size: Sequence[int], value: Any, dtype: torch.dtype | None = None, **_: Any
) -> Tensor:
    return torch.full(size, value, dtype=dtype or x.dtype)


def _ones(x: Tensor, size: Sequence[int], **options: Any) -> Tensor:
    return _full(x, size, 1, **options)


def _zeros(x: Tensor, size: Sequence[int], **options: Any) -> Tensor:
    return _full(x, size, 0, **options)


def _empty_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], **_: Any) -> Tensor:
    """What the gradient of a tensor is copied to, of which a part was written."""
    return torch.empty_strided(size, stride, dtype=x.dtype)


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


SIMPLER: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: _as_strided,
    aten.channel_shuffle.default: _channel_shuffle,
    aten.clamp.Tensor: _clamp,
    aten.empty_like.default: _zeros_like,
    aten.fill.Scalar: _full_like,
    aten.fill.Tensor: _full_like,
    aten.full_like.default: _full_like,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.mean.default: _average,
    aten.new_empty.default: _zeros,
    aten.new_empty_strided.default: _empty_strided,
    aten.new_full.default: _full,
    aten.new_ones.default: _ones,
    aten.new_zeros.default: _zeros,
    aten.ones_like.default: _ones_like,
    aten.pixel_shuffle.default: _pixel_shuffle,
    aten.pixel_unshuffle.default: _pixel_unshuffle,
    aten.roll.default: _roll,
    aten.select_backward.default: _select_backward,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.squeeze.default: _squeeze,
    aten.stack.default: _stack,
    aten.std.correction: _deviation,
    aten.sum.default: _total,
    aten.transpose.int: _transpose,
    aten.unbind.int: _unbind,
    aten._upsample_nearest_exact2d.default: _nearest,
    aten._upsample_nearest_exact2d_backward.default: _nearest_backward,
    aten.upsample_nearest2d.default: _nearest,
    aten.upsample_nearest2d_backward.default: _nearest_backward,
    aten.var.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
    aten.zero.default: _zero,
    aten.zeros_like.default: _zeros_like,
}
