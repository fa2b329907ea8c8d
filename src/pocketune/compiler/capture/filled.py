"""Tensors of one value, or of any where each is written later.

The number of images is open in a graph, so a tensor of as many is computed from one of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


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


FILLED: dict[Any, Callable[..., Any]] = {
    aten.empty_like.default: _zeros_like,
    aten.fill.Scalar: _full_like,
    aten.fill.Tensor: _full_like,
    aten.full_like.default: _full_like,
    aten.new_empty.default: _zeros,
    aten.new_empty_strided.default: _empty_strided,
    aten.new_full.default: _full,
    aten.new_ones.default: _ones,
    aten.new_zeros.default: _zeros,
    aten.ones_like.default: _ones_like,
    aten.zero.default: _zero,
    aten.zeros_like.default: _zeros_like,
}
