"""Patch sums and averaged gradients in 8 bits.

One scale for a tensor, `max |x| / 127`, and whole numbers from -127 to 127, rounded to the
nearest, halves to the even one: symmetric, so that a gradient of zero stays zero, and without
random numbers, so that a step gives the same on every engine. The error of an element is at most
half a scale.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pocketune.layers.operators import register_operator
from pocketune.layers.quantized_conv import LARGEST


@register_operator("int8_scale(Tensor x) -> Tensor")
def int8_scale(x: Tensor) -> Tensor:
    """`max |x| / 127`, () of any shape, in float32 at least; 1 where x is zero or empty."""
    if x.numel() == 0:
        return _wide(x).new_ones(())
    scale = _wide(x).abs().amax() / LARGEST
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers (int8) of the same shape, and their scale ()."""
    scale = int8_scale(x)
    return (_wide(x) / scale).round().to(torch.int8), scale


def from_int8(whole: Tensor, scale: Tensor) -> Tensor:
    """The inverse of `to_int8`, but for rounding."""
    return whole.to(scale.dtype) * scale


def in_int8(x: Tensor) -> Tensor:
    """`from_int8(*to_int8(x))`, without the bytes in between."""
    scale = int8_scale(x)
    return ((_wide(x) / scale).round() * scale).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """In float32 at least: in bfloat16 a quotient of 127 could come out as 128."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
