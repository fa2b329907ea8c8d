"""Feature maps cut into rectangular patches: pooled, and spread out again.

Both are operators of PyTorch's dispatcher (`torch.ops.pocketune.patch_pool`, `patch_spread`) and
single nodes of a traced training step, which the compiler lowers as a whole. They are not
differentiable: the layers that use them define the backward pass. On CUDA devices they run Triton
kernels if Triton is installed, as it is with PyTorch for CUDA on Linux.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional

from pocketune.layers.autograd import implement_on_cuda, register_operator

Pair = tuple[int, int]


@dataclass(frozen=True)
class Patches:
    """A grid of patches on a feature map, (vertical, horizontal) each.

    Attributes:
        size: Rows and columns of a patch.
        start: Where on the feature map the first patch begins; negative if it begins in the zeros
            around it.
        count: Patches in a column and in a row of the grid.
    """

    size: Pair
    start: Pair
    count: Pair


def patch_sum(x: Tensor, patches: Patches) -> Tensor:
    """Sum of each patch: (N, C, H, W) -> (N, C, *patches.count), with zeros around the input."""
    return patch_mean(x, patches, divisor=1)


def patch_mean(x: Tensor, patches: Patches, divisor: int | None = None) -> Tensor:
    """Sum of each patch over `divisor`, or over the number of its elements on the feature map."""
    patches = _on_map(patches, x.shape[2:])
    return _pool(x, patches.size, patches.start, patches.count, divisor)


def patch_spread(values: Tensor, patches: Patches, shape: Sequence[int]) -> Tensor:
    """Fill each patch with its value: (N, C, *patches.count) -> (N, C, *shape), zero elsewhere."""
    patches = _on_map(patches, shape)
    return _spread(values, patches.size, patches.start, shape)


def _on_map(patches: Patches, shape: Sequence[int]) -> Patches:
    """The same patches, cropped to the feature map along an axis with a single patch.

    Beyond the feature map it would hold only zeros, which take memory.
    """
    size, start = list(patches.size), list(patches.start)
    for axis, length in enumerate(shape):
        first, end = max(start[axis], 0), min(start[axis] + size[axis], length)
        if patches.count[axis] == 1 and first < end:
            size[axis], start[axis] = end - first, first
    return Patches((size[0], size[1]), (start[0], start[1]), patches.count)


def patch_elements(patches: Patches, shape: Sequence[int], like: Tensor) -> Tensor | int:
    """Number of elements of each patch on a feature map of `shape` rows and columns.

    Returns:
        The number that all have, or a tensor (1, 1, P, Q) in the type of `like`.
    """
    down, across = (
        [max(min(start + (i + 1) * n, d) - max(start + i * n, 0), 0) for i in range(c)]
        for n, start, c, d in zip(patches.size, patches.start, patches.count, shape, strict=True)
    )
    if len({*down}) == len({*across}) == 1:
        return down[0] * across[0]
    counts = [[rows * columns for columns in across] for rows in down]
    return torch.tensor([[counts]], dtype=like.dtype, device=like.device)


def before_and_after(
    size: Sequence[int], start: Sequence[int], count: Sequence[int], shape: Sequence[int]
) -> tuple[Pair, Pair]:
    """How far the grid extends beyond the feature map: top and left, bottom and right.

    Negative where the feature map extends beyond the grid.
    """
    top, left = (-s for s in start)
    bottom, right = (s + n * c - d for s, n, c, d in zip(start, size, count, shape, strict=True))
    return (top, left), (bottom, right)


@register_operator(
    "patch_pool(Tensor x, int[] size, int[] start, int[] count, int? divisor) -> Tensor"
)
def _pool(
    x: Tensor, size: Pair, start: Sequence[int], count: Sequence[int], divisor: int | None
) -> Tensor:
    (top, left), (bottom, right) = before_and_after(size, start, count, x.shape[2:])
    overhang = zip((top, left), (bottom, right), size, strict=True)
    if all(0 <= before <= n // 2 and 0 <= after < n for before, after, n in overhang):
        pooled: Tensor = functional.avg_pool2d(x, size, size, (top, left), True, False, divisor)
        return pooled
    return _pool_cropped(x, size, (left, right, top, bottom), divisor)


def _pool_cropped(x: Tensor, size: Pair, pads: tuple[int, ...], divisor: int | None) -> Tensor:
    total: Tensor
    total = functional.avg_pool2d(_fit(x, pads), size, divisor_override=divisor or 1)
    if divisor is not None:
        return total
    real = _fit(torch.ones_like(x[:1, :1]), pads)
    return total / functional.avg_pool2d(real, size, divisor_override=1).clamp(min=1)


@register_operator("patch_spread(Tensor values, int[] size, int[] start, int[] shape) -> Tensor")
def _spread(values: Tensor, size: Pair, start: Sequence[int], shape: Sequence[int]) -> Tensor:
    count = list(values.shape[2:])
    extent = [n * c for n, c in zip(size, count, strict=True)]
    (top, left), (bottom, right) = before_and_after(size, start, count, shape)
    if top == left == 0 and bottom >= 0 and right >= 0 and not _misread(extent, count, shape):
        return _upsample(values, size, shape)
    spread = _upsample(values, size, extent)
    if min(top, left, bottom, right) >= 0:
        return spread[:, :, top : top + shape[0], left : left + shape[1]]
    return _fit(spread, (-left, -right, -top, -bottom))


def _fit(x: Tensor, pads: tuple[int, ...]) -> Tensor:
    """`functional.pad` that may crop the whole feature map while it pads the other side."""
    left, right, top, bottom = pads
    padded: Tensor = functional.pad(x, [max(pad, 0) for pad in pads])
    height, width = padded.shape[2:]
    rows = slice(max(-top, 0), height - max(-bottom, 0))
    return padded[:, :, rows, max(-left, 0) : width - max(-right, 0)]


def _upsample(values: Tensor, size: Pair, shape: Sequence[int]) -> Tensor:
    # slightly less than the patch's size: a rounded quotient must not fall below the patch's index
    scales = [n * (1 - 2**-20) for n in size]
    upsampled: Tensor = torch.ops.aten.upsample_nearest2d.default(values, list(shape), *scales)
    return upsampled


def _misread(extent: Sequence[int], count: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether PyTorch ignores the given scale and uses 1 or 2, because the shapes suggest it."""
    return any(
        d in (c, 2 * c) and d != whole for d, c, whole in zip(shape, count, extent, strict=True)
    )


def _pool_on_cuda(
    x: Tensor, size: Pair, start: Sequence[int], count: Sequence[int], divisor: int | None
) -> Tensor:
    from pocketune.filtering import triton_kernels

    return triton_kernels.pool(x, size, start, count, divisor)


def _spread_on_cuda(
    values: Tensor, size: Pair, start: Sequence[int], shape: Sequence[int]
) -> Tensor:
    from pocketune.filtering import triton_kernels

    return triton_kernels.spread(values, size, start, shape)


if find_spec("triton"):
    implement_on_cuda("patch_pool", _pool_on_cuda)
    implement_on_cuda("patch_spread", _spread_on_cuda)
