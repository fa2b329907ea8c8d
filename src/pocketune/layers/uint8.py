"""Maps written in 8 bits."""

from typing import NamedTuple

import torch
from torch import Tensor

HIGHEST = 255
SMALLEST = 1e-30  # scale that float32 can divide by; what has a smaller one is taken for zero


class Uint8(NamedTuple):
    """How maps are written in 8 bits: a real number is `scale * (whole - zero)`."""

    scale: float
    zero: int

    @classmethod
    def spanning(cls, low: float, high: float) -> "Uint8":
        """All of [low, high], and zero exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / HIGHEST
        if scale < SMALLEST:
            return cls(1.0, 0)
        return cls(scale, round(-low / scale))

    def quantize(self, x: Tensor) -> Tensor:
        """Float of any shape -> uint8, ties to even; what lies outside becomes the nearest end."""
        x = torch.add(x.new_tensor(self.zero), x, alpha=1 / self.scale)  # in one pass
        return x.round_().clamp_(0, HIGHEST).to(torch.uint8)

    def dequantize(self, whole: Tensor) -> Tensor:
        """Uint8 of any shape -> float32."""
        return (whole.float() - self.zero) * self.scale
