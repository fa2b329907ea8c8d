"""UPerNet (Xiao et al., 2018) as in MMSegmentation: a feature pyramid under pooled context."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.backbone import pyramid
from pocketune.networks.architectures.dense import (
    DecodeHead,
    dense_network,
    head_layer,
    resized,
)
from pocketune.networks.architectures.pspnet import BINS, psp_modules, with_pooled
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import Dense, register_network


class UPerHead(DecodeHead):
    """PSPNet's pooling on the last map, and a top-down path to the first one.

    `fpn_bottleneck` reads the maps of all strides in the size of the first.
    """

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        *lower, wide = inputs
        self.psp_modules = psp_modules(wide, channels)
        self.bottleneck = head_layer(wide + len(BINS) * channels, channels, 3)
        self.lateral_convs = nn.ModuleList(head_layer(each, channels) for each in lower)
        self.fpn_convs = nn.ModuleList(head_layer(channels, channels, 3) for _ in lower)
        self.fpn_bottleneck = head_layer(len(inputs) * channels, channels, 3)
        self.channels = channels

    def forward(self, *maps: Tensor) -> Tensor:
        """(N, C, H, W) of each stride, the largest first -> (N, channels, H, W) of the largest."""
        *lower, last = maps
        top = self.bottleneck(with_pooled(last, self.psp_modules))
        sums = [module(x) for module, x in zip(self.lateral_convs, lower, strict=True)]
        above = top
        for place in reversed(range(len(sums))):
            above = sums[place] = sums[place] + resized(above, sums[place])
        levels = [module(x) for module, x in zip(self.fpn_convs, sums, strict=True)]
        levels = [resized(each, sums[0]) for each in (*levels, top)]
        y: Tensor = self.fpn_bottleneck(torch.cat(levels, 1))
        return y


@register_network("upernet", dense=Dense("resnet18_v1c", head_channels=512, output_stride=32))
def upernet(config: NetworkConfig) -> nn.Module:
    """UPerNet over any backbone."""
    return dense_network(config, UPerHead, taps=pyramid, dropout=nn.Dropout2d(0.1))
