"""Gradients on the small maps of patches: products, and rounding to 8 bits.

The products are those of a convolution of stride 1 that keeps the size, and operators of PyTorch's
dispatcher like those of `pocketune.filtering.patches`.

In 8 bits a tensor has one scale, `max |x| / 127`, and whole numbers from -127 to 127, rounded to
nearest, ties to even. They are symmetric, so that a gradient of zero stays zero, and not random, so
that a step gives the same result on every engine. The error of an element is at most half a scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from pocketune.layers.autograd import register_operator
from pocketune.layers.quantized import LARGEST
from pocketune.torch_private import matrix_product

# Multiply-adds below which a matrix product computes a kernel's gradient faster: a convolution has
# more to set up. Above, the convolution takes 0.6 of the time.
_FEW = 5_000_000


@register_operator(
    "patch_input_gradient(Tensor g, Tensor kernel, int[] dilation, int groups) -> Tensor"
)
def input_gradient(g: Tensor, kernel: Tensor, dilation: Sequence[int], groups: int) -> Tensor:
    """Gradient of the input (N, I, P, Q) from that of the output, `g` (N, O, P, Q).

    `kernel` is (O, I / groups, k, k) with odd k; every side is padded by `dilation * (k // 2)`.
    """
    one_tap = kernel.shape[2:] == (1, 1)
    if one_tap and _is_depthwise(kernel, groups):
        return g * kernel.view(1, -1, 1, 1)
    if one_tap and groups == 1:
        batch, _, height, width = g.shape
        rows = matrix_product(_rows(g), kernel.flatten(1))
        gradient = rows.view(batch, height, width, kernel.shape[1]).permute(0, 3, 1, 2)
        return gradient.contiguous(memory_format=_memory_format(g))
    dilation = [max(d, 1) for d in dilation]
    padding = [d * (k // 2) for d, k in zip(dilation, kernel.shape[2:], strict=True)]
    return functional.conv_transpose2d(g, kernel, None, 1, padding, 0, groups, dilation)


@register_operator("patch_kernel_gradient(Tensor g, Tensor x, int groups) -> Tensor")
def kernel_gradient(g: Tensor, x: Tensor, groups: int) -> Tensor:
    """Gradient of a 1x1 kernel (O, I / groups, 1, 1) from g (N, O, P, Q) and x (N, I, P, Q)."""
    outputs, inputs = g.shape[1], x.shape[1]
    if groups == inputs == outputs:
        return (g * x).sum((0, 2, 3)).view(outputs, 1, 1, 1)
    if groups == 1 and g.numel() * inputs < _FEW:
        return (_rows(g).t() @ _rows(x)).view(outputs, inputs, 1, 1)
    shape = (outputs, inputs // groups, 1, 1)
    gradient: Tensor = conv2d_weight(x, shape, g, groups=groups)  # type: ignore[no-untyped-call]
    return gradient


def _is_depthwise(kernel: Tensor, groups: int) -> bool:
    return kernel.shape[1] == 1 and kernel.shape[0] == groups


def _rows(x: Tensor) -> Tensor:
    """(N, C, P, Q) as (N * P * Q, C)."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _memory_format(x: Tensor) -> torch.memory_format:
    last = x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


@register_operator("int8_scale(Tensor x) -> Tensor")
def int8_scale(x: Tensor) -> Tensor:
    """`max |x| / 127` of a tensor of any shape, in at least float32; 1 if x is zero or empty."""
    if x.numel() == 0:
        return _wide(x).new_ones(())
    scale = _wide(x).abs().amax() / LARGEST
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers (int8) of the same shape, and their scale ()."""
    scale = int8_scale(x)
    return (_wide(x) / scale).round().to(torch.int8), scale


def from_int8(whole: Tensor, scale: Tensor) -> Tensor:
    """The inverse of `to_int8`, except for rounding."""
    return whole.to(scale.dtype) * scale


def in_int8(x: Tensor) -> Tensor:
    """`from_int8(*to_int8(x))` without the bytes in between."""
    scale = int8_scale(x)
    return ((_wide(x) / scale).round() * scale).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """In at least float32: in bfloat16 a quotient of 127 could become 128."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
