"""Gradient filtering: convolutions whose backward pass works on patch averages."""

from pocketune.filtering.conv import FilteredConv2d, check_filter, filter_convolution
from pocketune.filtering.pooled import SLOPES, PooledActivation, PooledBatchNorm2d, PooledMap

__all__ = [
    "SLOPES",
    "FilteredConv2d",
    "PooledActivation",
    "PooledBatchNorm2d",
    "PooledMap",
    "check_filter",
    "filter_convolution",
]
