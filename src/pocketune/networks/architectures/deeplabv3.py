"""DeepLabV3 (Chen et al., 2017) as in MMSegmentation: parallel dilated convolutions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks.architectures.dense import (
    DecodeHead,
    dense_network,
    head_layer,
    resized,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import Dense, register_network

DILATIONS = (12, 24, 36)


class ASPP(DecodeHead):
    """Atrous spatial pyramid pooling: five convolutions that read the same map.

    `image_pool` reads its global average. Those of `aspp` are a 1x1 and three dilated 3x3 ones.
    """

    def __init__(self, wide: int, channels: int) -> None:
        super().__init__()
        self.image_pool = head_layer(wide, channels)
        dilated = (head_layer(wide, channels, 3, dilation=d) for d in DILATIONS)
        self.aspp = nn.ModuleList([head_layer(wide, channels), *dilated])
        self.channels = channels

    def pooled(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, channels, H, W), the same everywhere."""
        return resized(self.image_pool(functional.adaptive_avg_pool2d(x, 1)), x)


class ASPPHead(ASPP):
    """The pyramid and a 3x3 convolution over its maps."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        (wide,) = inputs
        super().__init__(wide, channels)
        self.bottleneck = head_layer((2 + len(DILATIONS)) * channels, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H, W)."""
        maps = (self.pooled(x), *(module(x) for module in self.aspp))
        y: Tensor = self.bottleneck(torch.cat(maps, 1))
        return y


@register_network("deeplabv3", dense=Dense("resnet18_v1c", head_channels=128, output_stride=8))
def deeplabv3(config: NetworkConfig) -> nn.Module:
    """DeepLabV3 over any backbone."""
    return dense_network(config, ASPPHead, dropout=nn.Dropout2d(0.1))
