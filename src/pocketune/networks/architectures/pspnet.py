"""PSPNet (Zhao et al., 2017) as in MMSegmentation: context from pooled maps."""

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

BINS = (1, 2, 3, 6)
"""Rows and columns of the pooled maps."""


def psp_modules(wide: int, channels: int) -> nn.ModuleList:
    """A 1x1 convolution for each pooled map."""
    return nn.ModuleList(head_layer(wide, channels) for _ in BINS)


def with_pooled(x: Tensor, modules: nn.ModuleList) -> Tensor:
    """(N, C, H, W) and, behind its channels, those of the pooled maps in the same size."""
    pooled = (
        module(functional.adaptive_avg_pool2d(x, bins))
        for bins, module in zip(BINS, modules, strict=True)
    )
    return torch.cat((x, *(resized(each, x) for each in pooled)), 1)


class PSPHead(DecodeHead):
    """Pools to 1, 2, 3 and 6 rows and columns, and a 3x3 convolution over all maps."""

    def __init__(self, inputs: Sequence[int], channels: int) -> None:
        super().__init__()
        (wide,) = inputs
        self.psp_modules = psp_modules(wide, channels)
        self.bottleneck = head_layer(wide + len(BINS) * channels, channels, 3)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H, W)."""
        y: Tensor = self.bottleneck(with_pooled(x, self.psp_modules))
        return y


@register_network("pspnet", dense=Dense("resnet18_v1c", head_channels=128, output_stride=8))
def pspnet(config: NetworkConfig) -> nn.Module:
    """PSPNet over any backbone."""
    return dense_network(config, PSPHead, dropout=nn.Dropout2d(0.1))
