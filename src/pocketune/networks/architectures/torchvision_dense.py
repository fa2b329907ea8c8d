"""FCN and DeepLabV3 as in torchvision, whose heads differ from MMSegmentation's."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.deeplabv3 import ASPP, DILATIONS
from pocketune.networks.architectures.dense import DecodeHead, dense_network, head_layer
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import Dense, register_network

LAST_STAGE_ONLY = {"mobilenet_v3_large": 16, "mobilenet_v3_small": 16}
"""torchvision dilates only the last stage of these."""


class TorchvisionFCNHead(DecodeHead):
    """One 3x3 convolution."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        (wide,) = inputs
        self.bottleneck = head_layer(wide, channels, 3)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H, W)."""
        y: Tensor = self.bottleneck(x)
        return y


class TorchvisionASPPHead(ASPP):
    """The pyramid, a 1x1 convolution over its maps, dropout and a 3x3 convolution."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        (wide,) = inputs
        super().__init__(wide, channels)
        self.project = head_layer((2 + len(DILATIONS)) * channels, channels)
        self.dropout = nn.Dropout(0.5)
        self.bottleneck = head_layer(channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H, W)."""
        maps = (*(module(x) for module in self.aspp), self.pooled(x))
        y: Tensor = self.bottleneck(self.dropout(self.project(torch.cat(maps, 1))))
        return y


@register_network(
    "fcn_torchvision",
    dense=Dense("resnet50", head_channels=512, output_stride=8, of_backbone=LAST_STAGE_ONLY),
)
def fcn_torchvision(config: NetworkConfig) -> nn.Module:
    """FCN with torchvision's head over any backbone with its feature-fusion layer."""
    return dense_network(config, TorchvisionFCNHead, feature_fusion=True, dropout=nn.Dropout(0.1))


@register_network(
    "deeplabv3_torchvision",
    dense=Dense("resnet50", head_channels=256, output_stride=8, of_backbone=LAST_STAGE_ONLY),
)
def deeplabv3_torchvision(config: NetworkConfig) -> nn.Module:
    """DeepLabV3 with torchvision's head over any backbone with its feature-fusion layer."""
    return dense_network(config, TorchvisionASPPHead, feature_fusion=True)
