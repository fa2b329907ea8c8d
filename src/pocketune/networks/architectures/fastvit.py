"""FastViT-T8 (Vasu et al., 2023), with timm's names, in the form that it is pretrained in.

Its re-parameterized convolutions keep their branches, so that timm's weights load unchanged.
"""

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.parts import (
    SqueezeExcite,
    blocks_at,
    initialize,
    make_divisible,
)
from pocketune.networks.architectures.timm_parts import ConvNorm, PooledLinear
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

CHANNELS = 48
"""Of the first stage; each one after it has twice as many, and the last convolution as well."""
BLOCKS = (2, 2, 4, 2)
SCALE = 1e-5
"""Initial value of the layer scales."""


class MobileOneBlock(nn.Module):
    """The sum of a k x k convolution, a 1x1 one and the input, each normalized; then an activation.

    The 1x1 convolution is there for k above 1, the input where its shape fits. `normed` leaves both
    convolutions out. A squeeze-excite runs before the activation.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        normed: bool = False,
        squeeze_excite: bool = False,
        activation: bool = True,
        padding: str,
    ) -> None:
        super().__init__()
        self.se = (
            SqueezeExcite(outputs, outputs // 16, gate=nn.Sigmoid)
            if squeeze_excite
            else nn.Identity()
        )
        self.identity = nn.BatchNorm2d(inputs) if inputs == outputs and stride == 1 else None
        self.conv_kxk, self.conv_scale = None, None
        if not normed:
            layer = ConvNorm(inputs, outputs, kernel, stride=stride, groups=groups, padding=padding)
            self.conv_kxk = nn.ModuleList([layer])
        if not normed and kernel > 1:
            self.conv_scale = ConvNorm(
                inputs, outputs, 1, stride=stride, groups=groups, padding=padding
            )
        self.act = nn.GELU() if activation else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        branches = [self.conv_scale, self.identity, *(self.conv_kxk or [])]
        first, *others = [branch(x) for branch in branches if branch is not None]
        y: Tensor = first
        for other in others:
            y = y + other
        activated: Tensor = self.act(self.se(y))
        return activated


class LayerScale(nn.Module):
    """A learned factor for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((channels, 1, 1), SCALE))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        return x * self.gamma


class RepMixer(nn.Module):
    """The input plus the scaled difference of a depthwise block and a norm."""

    def __init__(self, channels: int, *, padding: str) -> None:
        super().__init__()
        self.norm = MobileOneBlock(
            channels, channels, 3, normed=True, activation=False, padding=padding
        )
        self.mixer = MobileOneBlock(
            channels, channels, 3, groups=channels, activation=False, padding=padding
        )
        self.layer_scale = LayerScale(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = x + self.layer_scale(self.mixer(x) - self.norm(x))
        return y


class ConvMlp(nn.Module):
    """Depthwise 7x7 convolution with a norm, 1x1 convolution, GELU, 1x1 convolution."""

    def __init__(self, channels: int, hidden: int, *, padding: str) -> None:
        super().__init__()
        self.conv = ConvNorm(channels, channels, 7, groups=channels, padding=padding)
        self.fc1 = nn.Conv2d(channels, hidden, 1)
        self.act = nn.GELU()
        self.fc2 = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = self.fc2(self.act(self.fc1(self.conv(x))))
        return y


class RepMixerBlock(nn.Module):
    """Token mixer, and a scaled perceptron of three times the channels with a shortcut."""

    def __init__(self, channels: int, *, padding: str) -> None:
        super().__init__()
        self.token_mixer = RepMixer(channels, padding=padding)
        self.mlp = ConvMlp(channels, 3 * channels, padding=padding)
        self.layer_scale = LayerScale(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        x = self.token_mixer(x)
        y: Tensor = x + self.layer_scale(self.mlp(x))
        return y


class LargeKernel(nn.Module):
    """The sum of strided 7x7 and 3x3 convolutions of groups of channels, each normalized."""

    def __init__(self, inputs: int, outputs: int, *, padding: str) -> None:
        super().__init__()
        self.large_conv = ConvNorm(inputs, outputs, 7, stride=2, groups=inputs, padding=padding)
        self.small_conv = ConvNorm(inputs, outputs, 3, stride=2, groups=inputs, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2)."""
        y: Tensor = self.large_conv(x) + self.small_conv(x)
        return y


class Downsample(nn.Module):
    """Strided convolutions of a large kernel, then a 1x1 block."""

    def __init__(self, inputs: int, outputs: int, *, padding: str) -> None:
        super().__init__()
        self.proj = nn.Sequential(
            LargeKernel(inputs, outputs, padding=padding),
            MobileOneBlock(outputs, outputs, 1, padding=padding),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2)."""
        y: Tensor = self.proj(x)
        return y


class Stage(nn.Module):
    """`downsample`, except in the first stage, and `blocks`."""

    def __init__(self, inputs: int, outputs: int, blocks: int, *, padding: str) -> None:
        super().__init__()
        self.downsample = (
            nn.Identity() if inputs == outputs else Downsample(inputs, outputs, padding=padding)
        )
        self.blocks = nn.Sequential(
            *(RepMixerBlock(outputs, padding=padding) for _ in range(blocks))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2), or of the same size."""
        y: Tensor = self.blocks(self.downsample(x))
        return y


class FastViT(nn.Module):
    """`stem`, four `stages`, `final_conv`, `head`."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        padding, first = config.padding, make_divisible(CHANNELS * config.width)
        self.stem = nn.Sequential(
            MobileOneBlock(3, first, 3, stride=2, padding=padding),
            MobileOneBlock(first, first, 3, stride=2, groups=first, padding=padding),
            MobileOneBlock(first, first, 1, padding=padding),
        )
        channels = [first * 2**place for place in range(4)]
        before = [first, *channels[:-1]]
        blocks = [blocks_at(config.depth, count) for count in BLOCKS]
        self.stages = nn.Sequential(
            *(
                Stage(inputs, outputs, count, padding=padding)
                for inputs, outputs, count in zip(before, channels, blocks, strict=True)
            )
        )
        last = channels[-1]
        self.final_conv = MobileOneBlock(
            last, 2 * last, 3, groups=last, squeeze_excite=True, padding=padding
        )
        self.head = PooledLinear(2 * last, config.classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.head(self.final_conv(self.stages(self.stem(x))))
        return logits


@register_network("fastvit_t8", has_depth=True, has_stages=False)
def fastvit_t8(config: NetworkConfig) -> nn.Module:
    """FastViT-T8 at any width and depth."""
    return FastViT(config)
