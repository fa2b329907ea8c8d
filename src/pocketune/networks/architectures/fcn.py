"""FCN (Long et al., 2015) as in MMSegmentation: a decode head of convolutions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.dense import DecodeHead, dense_network, head_layer
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import Dense, register_network


class FCNHead(DecodeHead):
    """Two 3x3 convolutions, and a third one over the input and their output."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        (wide,) = inputs
        self.convs = nn.Sequential(head_layer(wide, channels, 3), head_layer(channels, channels, 3))
        self.conv_cat = head_layer(wide + channels, channels, 3)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H, W)."""
        y: Tensor = self.conv_cat(torch.cat((x, self.convs(x)), 1))
        return y


@register_network("fcn", dense=Dense("resnet18_v1c", head_channels=128, output_stride=8))
def fcn(config: NetworkConfig) -> nn.Module:
    """FCN over any backbone."""
    return dense_network(config, FCNHead, dropout=nn.Dropout2d(0.1))
