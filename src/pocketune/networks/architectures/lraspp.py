"""LR-ASPP (Howard et al., 2019): the light head of MobileNetV3, with torchvision's layers."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks.architectures.backbone import first_of_8_and_last
from pocketune.networks.architectures.dense import (
    DecodeHead,
    dense_network,
    head_layer,
    resized,
)
from pocketune.networks.architectures.parts import convolution
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import Dense, register_network


class LRASPPHead(DecodeHead):
    """The last map, scaled by its global average, in the size of the one of stride 8, and that one.

    torchvision's network classifies the two maps apart and adds the logits. A 1x1 convolution and a
    bilinear resize may change places, so one classifier of both maps computes the same.
    """

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        low, high = inputs
        self.cbr = head_layer(high, channels)
        self.scale = nn.Sequential(convolution(high, channels), nn.Sigmoid())
        self.channels = low + channels

    def forward(self, low: Tensor, high: Tensor) -> Tensor:
        """(N, low, H, W) and (N, high, h, w) -> (N, low + channels, H, W)."""
        y = self.cbr(high) * self.scale(functional.adaptive_avg_pool2d(high, 1))
        return torch.cat((low, resized(y, low)), 1)


@register_network("lraspp", dense=Dense("mobilenet_v3_large", head_channels=128, output_stride=16))
def lraspp(config: NetworkConfig) -> nn.Module:
    """LR-ASPP over any backbone with its feature-fusion layer."""
    return dense_network(config, LRASPPHead, taps=first_of_8_and_last, feature_fusion=True)
