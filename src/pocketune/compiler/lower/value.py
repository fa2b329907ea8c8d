"""What a node of the traced graph has become in the ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Value:
    """A tensor of the step, in one or several memory layouts.

    `shape` is the shape that PyTorch sees. `plain` is the ONNX tensor of that shape; `rows` holds
    a map (N, C, H, W) as the matrix (N*H*W, C), in which a 1x1 convolution is a matrix product
    and a sum over a channel a product with ones. Layouts are made on demand and remembered.

    A value can stand for another one without a node of its own: `constant` is known when
    compiling, `vector` is a tensor (C,) seen as (1, C, 1, 1), `expanded` is broadcast to `shape`
    by whoever reads it, `transposed` is read through the flags of `Gemm`. `made_by` lets a rule
    fold itself into the one before.
    """

    shape: tuple[int, ...]
    plain: str | None = None
    rows: str | None = None
    constant: Tensor | None = None
    expanded: Value | None = None
    vector: str | None = None
    transposed: Value | None = None
    made_by: Any = None

    @property
    def is_map(self) -> bool:
        """Whether this is a batch of feature maps (N, C, H, W)."""
        return len(self.shape) == 4

    @property
    def pixels(self) -> int:
        """H * W of a map."""
        return self.shape[2] * self.shape[3]
