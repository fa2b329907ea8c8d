"""Memory-lean layers, each stating what it keeps for the backward pass."""

from pocketune.layers.activation import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.layers.frozen_conv import FrozenConv2d
from pocketune.layers.group_norm import GroupNorm
from pocketune.layers.integer_conv import IntegerConv2d, computes_integers
from pocketune.layers.lite_residual import LiteResidual
from pocketune.layers.norm import FrozenBatchNorm1d, FrozenBatchNorm2d
from pocketune.layers.program import ProgramModule
from pocketune.layers.quantized_conv import QuantizedConv2d, round_to_int8
from pocketune.layers.uint8 import Uint8
from pocketune.layers.weight_standardization import StandardizedConv2d, standardized

__all__ = [
    "FrozenBatchNorm1d",
    "FrozenBatchNorm2d",
    "FrozenConv2d",
    "GroupNorm",
    "IntegerConv2d",
    "LiteResidual",
    "MaskedReLU",
    "MaskedReLU6",
    "ProgramModule",
    "QuantizedConv2d",
    "SignedHardswish",
    "SignedReLU",
    "SignedReLU6",
    "StandardizedConv2d",
    "Uint8",
    "computes_integers",
    "round_to_int8",
    "standardized",
]
