"""MobileViT-XXS (Mehta and Rastegari, 2022), with the names of timm's `mobilevit_xxs`."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.networks.architectures.parts import (
    blocks_at,
    convolution,
    initialize,
    make_divisible,
)
from pocketune.networks.architectures.timm_parts import ConvNorm, PooledLinear
from pocketune.networks.architectures.transformer import Block, initialize_transformer
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

PATCH = 2
HEADS = 4


class Row(NamedTuple):
    """A stage of inverted residuals, with a transformer behind them where `tokens` is not 0."""

    outputs: int
    blocks: int
    stride: int
    tokens: int = 0
    transformers: int = 0


XXS = (
    Row(16, 1, 1),
    Row(24, 3, 2),
    Row(48, 1, 2, tokens=64, transformers=2),
    Row(64, 1, 2, tokens=80, transformers=4),
    Row(80, 1, 2, tokens=96, transformers=3),
)


class InvertedResidual(nn.Module):
    """1x1 expansion to twice the channels, depthwise 3x3, 1x1 projection."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, padding: str) -> None:
        super().__init__()
        middle = 2 * inputs
        self.conv1_1x1 = ConvNorm(inputs, middle, padding=padding, activation=nn.SiLU)
        self.conv2_kxk = ConvNorm(
            middle, middle, 3, stride=stride, groups=middle, padding=padding, activation=nn.SiLU
        )
        self.conv3_1x1 = ConvNorm(middle, outputs, padding=padding)
        self.has_skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.conv3_1x1(self.conv2_kxk(self.conv1_1x1(x)))
        return x + y if self.has_skip else y


class MobileViTBlock(nn.Module):
    """Convolutions, a transformer over the pixels at the same place of each patch, and a fusion.

    Patches have 2 x 2 pixels; a map of odd sides is resized before and after the transformer.
    """

    def __init__(self, channels: int, tokens: int, blocks: int, *, padding: str) -> None:
        super().__init__()
        self.conv_kxk = ConvNorm(channels, channels, 3, padding=padding, activation=nn.SiLU)
        self.conv_1x1 = convolution(channels, tokens)
        self.transformer = nn.Sequential(
            *(Block(tokens, HEADS, 2 * tokens, activation=nn.SiLU, eps=1e-5) for _ in range(blocks))
        )
        self.norm = nn.LayerNorm(tokens)
        self.conv_proj = ConvNorm(tokens, channels, padding=padding, activation=nn.SiLU)
        self.conv_fusion = ConvNorm(2 * channels, channels, 3, padding=padding, activation=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y = self.conv_1x1(self.conv_kxk(x))
        sides = y.shape[2:]
        rows, columns = (math.ceil(side / PATCH) for side in sides)
        fitting = (rows * PATCH, columns * PATCH)
        if fitting != tuple(sides):
            y = functional.interpolate(y, size=fitting, mode="bilinear", align_corners=False)
        count, channels = y.shape[:2]
        patches = y.reshape(count, channels, rows, PATCH, columns, PATCH)
        tokens = patches.permute(0, 3, 5, 2, 4, 1).reshape(-1, rows * columns, channels)
        tokens = self.norm(self.transformer(tokens))
        patches = tokens.reshape(count, PATCH, PATCH, rows, columns, channels)
        y = patches.permute(0, 5, 3, 1, 4, 2).reshape(count, channels, *fitting)
        if fitting != tuple(sides):
            y = functional.interpolate(y, size=tuple(sides), mode="bilinear", align_corners=False)
        fused: Tensor = self.conv_fusion(torch.cat((x, self.conv_proj(y)), dim=1))
        return fused


class MobileViT(nn.Module):
    """`stem`, five `stages`, 1x1 `final_conv`, `head`."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        padding, width = config.padding, config.width
        inputs = make_divisible(16 * width)
        self.stem = ConvNorm(3, inputs, 3, stride=2, padding=padding, activation=nn.SiLU)
        stages = []
        for row in XXS:
            outputs, blocks = make_divisible(row.outputs * width), list[nn.Module]()
            for place in range(blocks_at(config.depth, row.blocks)):
                stride = row.stride if place == 0 else 1
                blocks.append(InvertedResidual(inputs, outputs, stride=stride, padding=padding))
                inputs = outputs
            if row.tokens:
                tokens = make_divisible(row.tokens * width)
                count = blocks_at(config.depth, row.transformers)
                blocks.append(MobileViTBlock(inputs, tokens, count, padding=padding))
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        outputs = make_divisible(320 * width)
        self.final_conv = ConvNorm(inputs, outputs, padding=padding, activation=nn.SiLU)
        self.head = PooledLinear(outputs, config.classes)
        initialize(self)
        for module in self.modules():
            if isinstance(module, Block):
                initialize_transformer(module)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.head(self.final_conv(self.stages(self.stem(x))))
        return logits


@register_network("mobilevit_xxs", has_depth=True, has_stages=False)
def mobilevit_xxs(config: NetworkConfig) -> nn.Module:
    """MobileViT-XXS at any width and depth."""
    return MobileViT(config)
