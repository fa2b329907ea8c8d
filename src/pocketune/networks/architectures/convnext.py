"""ConvNeXt-Atto (Liu et al., 2022; the size is timm's), with timm's names."""

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.parts import blocks_at, initialize_linear, make_divisible
from pocketune.networks.architectures.transformer import initialize_transformer
from pocketune.networks.config import NetworkConfig, plain_only
from pocketune.networks.registry import register_network

CHANNELS = 40
"""Of the first stage; each one after it has twice as many."""
BLOCKS = (2, 2, 6, 2)
EPS = 1e-6


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of each pixel of a map (N, C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvMlp(nn.Module):
    """1x1 convolution `fc1`, GELU, 1x1 convolution `fc2`."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.act = nn.GELU()
        self.fc2 = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = self.fc2(self.act(self.fc1(x)))
        return y


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm, perceptron of four times the channels, scale `gamma`, shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((channels,), 1e-6))
        self.conv_dw = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = LayerNorm2d(channels, eps=EPS)
        self.mlp = ConvMlp(channels, 4 * channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = self.mlp(self.norm(self.conv_dw(x)))
        return x + y * self.gamma.reshape(1, -1, 1, 1)


class Stage(nn.Module):
    """`downsample` halves the map and widens it, except before the first stage; then `blocks`."""

    def __init__(self, inputs: int, outputs: int, blocks: int) -> None:
        super().__init__()
        self.downsample = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(
                LayerNorm2d(inputs, eps=EPS), nn.Conv2d(inputs, outputs, 2, stride=2)
            )
        )
        self.blocks = nn.Sequential(*(ConvNeXtBlock(outputs) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2), or of the same size."""
        y: Tensor = self.blocks(self.downsample(x))
        return y


class Head(nn.Module):
    """Global average pooling, layer norm `norm`, linear layer `fc`."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=EPS)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, classes)."""
        logits: Tensor = self.fc(self.norm(x.mean((2, 3))))
        return logits


class ConvNeXt(nn.Module):
    """Patches of 4 x 4 pixels (`stem`), four `stages`, `head`."""

    def __init__(self, channels: list[int], blocks: list[int], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels[0], 4, stride=4), LayerNorm2d(channels[0], eps=EPS)
        )
        before = [channels[0], *channels[:-1]]
        self.stages = nn.Sequential(*map(Stage, before, channels, blocks))
        self.head = Head(channels[-1], classes)
        _initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.head(self.stages(self.stem(x)))
        return logits


def _initialize(network: ConvNeXt) -> None:
    """Convolutions as the linear layers of transformers, as the paper does."""
    initialize_transformer(network)
    if network.head.fc.weight.is_meta:
        return
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    initialize_linear(network.head.fc)


@register_network("convnext_atto", has_depth=True, has_stages=False)
def convnext_atto(config: NetworkConfig) -> nn.Module:
    """ConvNeXt-Atto at any width and depth."""
    plain_only(config)
    first = make_divisible(CHANNELS * config.width)
    channels = [first * 2**stage for stage in range(4)]
    blocks = [blocks_at(config.depth, count) for count in BLOCKS]
    return ConvNeXt(channels, blocks, config.classes)
