"""Memory-lean layers, each stating what it keeps for the backward pass."""

from pocketune.layers.group_norm import GroupNorm
from pocketune.layers.lite_residual import LiteResidual
from pocketune.layers.norm import FrozenBatchNorm2d
from pocketune.layers.program import ProgramModule
from pocketune.layers.weight_standardization import StandardizedConv2d, standardized

__all__ = [
    "FrozenBatchNorm2d",
    "GroupNorm",
    "LiteResidual",
    "ProgramModule",
    "StandardizedConv2d",
    "standardized",
]
