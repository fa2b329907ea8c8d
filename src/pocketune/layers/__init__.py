"""Memory-efficient layers; each docstring states what is kept for the backward pass."""

from pocketune.layers.activation import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.layers.conv import Conv2d, FrozenConv2d
from pocketune.layers.few_bit import FewBitGELU, FewBitHardswish, FewBitSiLU
from pocketune.layers.few_bit_norm import FewBitLayerNorm
from pocketune.layers.group_norm import GroupNorm, make_contiguous
from pocketune.layers.integer import IntegerConv2d, computes_integers
from pocketune.layers.lora import LowRank, product
from pocketune.layers.low_rank_backward import LowRankConv2d, LowRankLinear
from pocketune.layers.norm import FrozenBatchNorm1d, FrozenBatchNorm2d
from pocketune.layers.pruned_activations import (
    PrunedBatchNorm2d,
    PrunedConv2d,
    PrunedStandardizedConv2d,
)
from pocketune.layers.quantized import QuantizedConv2d, QuantizedLinear, Uint8, round_to_int8
from pocketune.layers.side_branch import LiteResidual, ProgramModule
from pocketune.layers.weight_standardization import (
    StandardizedConv2d,
    settled,
    standardize_convolution,
    standardized,
)

__all__ = [
    "Conv2d",
    "FewBitGELU",
    "FewBitHardswish",
    "FewBitLayerNorm",
    "FewBitSiLU",
    "FrozenBatchNorm1d",
    "FrozenBatchNorm2d",
    "FrozenConv2d",
    "GroupNorm",
    "IntegerConv2d",
    "LiteResidual",
    "LowRank",
    "LowRankConv2d",
    "LowRankLinear",
    "MaskedReLU",
    "MaskedReLU6",
    "ProgramModule",
    "PrunedBatchNorm2d",
    "PrunedConv2d",
    "PrunedStandardizedConv2d",
    "QuantizedConv2d",
    "QuantizedLinear",
    "SignedHardswish",
    "SignedReLU",
    "SignedReLU6",
    "StandardizedConv2d",
    "Uint8",
    "computes_integers",
    "make_contiguous",
    "product",
    "round_to_int8",
    "settled",
    "standardize_convolution",
    "standardized",
]
