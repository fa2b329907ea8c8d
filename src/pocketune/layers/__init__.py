"""Memory-lean layers, each stating what it keeps for the backward pass."""

from pocketune.layers.activation import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.layers.norm import FrozenBatchNorm2d

__all__ = [
    "FrozenBatchNorm2d",
    "MaskedReLU",
    "MaskedReLU6",
    "SignedHardswish",
    "SignedReLU",
    "SignedReLU6",
]
