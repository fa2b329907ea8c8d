"""Memory-lean layers, each stating what it keeps for the backward pass."""

from pocketune.layers.filtered_conv import FilteredConv2d, check_filter
from pocketune.layers.norm import FrozenBatchNorm2d

__all__ = ["FilteredConv2d", "FrozenBatchNorm2d", "check_filter"]
