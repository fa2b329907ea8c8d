"""Memory-lean layers, each stating what it keeps for the backward pass."""

from pocketune.layers.activation import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.layers.frozen_conv import FrozenConv2d
from pocketune.layers.norm import FrozenBatchNorm2d

__all__ = [
    "FrozenBatchNorm2d",
    "FrozenConv2d",
    "MaskedReLU",
    "MaskedReLU6",
    "SignedHardswish",
    "SignedReLU",
    "SignedReLU6",
]
