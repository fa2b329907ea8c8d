"""Operators of single layers, means and variances as arithmetic.

PyTorch's own decompositions of these lead to primitives below ATen, or to tensors of indices.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (a / b)


def _lerp(start: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
    return start + weight * (end - start)


def _clamp(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return torch.where(mask, torch.as_tensor(value, dtype=x.dtype), x)


def _hard_shrink(x: Tensor, limit: float = 0.5) -> Tensor:
    return torch.where(x.abs() <= limit, 0.0, x)


def _hard_shrink_backward(g: Tensor, x: Tensor, limit: float) -> Tensor:
    return torch.where(x.abs() <= limit, 0.0, g)


def _soft_shrink(x: Tensor, limit: float = 0.5) -> Tensor:
    return x - x.clamp(-limit, limit)


def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """With the exponential that PyTorch's gradient reads."""
    small = (-x.abs()).exp()
    return -(1 + small).log() - (-x).relu(), small


def _log_sigmoid_backward(g: Tensor, x: Tensor, _: Tensor) -> Tensor:
    return g * (-x).sigmoid()


def _total(x: Tensor, **options: Any) -> Tensor:
    return x.sum(list(range(x.dim())), **options)


def _average(x: Tensor, **options: Any) -> Tensor:
    return x.mean(list(range(x.dim())), **options)


def _log_sum_exp(x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    dims = [*dims]
    largest = x.amax(dims, keepdim=True)
    total = (x - largest).exp().sum(dims, keepdim=keepdim).log()
    total += largest if keepdim else x.amax(dims)
    return total


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


def _norm(x: Tensor, order: float | None, dims: Sequence[int], keepdim: bool = False) -> Tensor:
    norm: Tensor = aten.linalg_vector_norm(x, 2 if order is None else order, [*dims], keepdim)
    return norm


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


ARITHMETIC: dict[Any, Callable[..., Any]] = {
    aten._weight_norm_interface.default: _weight_norm,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.addcdiv.default: _addcdiv,
    aten.clamp.Tensor: _clamp,
    aten.hardshrink.default: _hard_shrink,
    aten.hardshrink_backward.default: _hard_shrink_backward,
    aten.lerp.Scalar: _lerp,
    aten.lerp.Tensor: _lerp,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.logsumexp.default: _log_sum_exp,
    aten.masked_fill.Scalar: _masked_fill,
    aten.masked_fill.Tensor: _masked_fill,
    aten.mean.default: _average,
    aten.norm.Scalar: _norm_of_all,
    aten.norm.ScalarOpt_dim: _norm,
    aten.softshrink.default: _soft_shrink,
    aten.softshrink_backward.default: _hard_shrink_backward,
    aten.std.correction: _deviation,
    aten.sum.default: _total,
    aten.var.correction: _variance,
    aten.var_mean.correction: _variance_and_mean,
}
