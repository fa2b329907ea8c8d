"""RepViT-M0.9 (Wang et al., 2024), with timm's names, in the form that it is pretrained in.

Its re-parameterized convolutions keep their branches, so that timm's weights load unchanged. So do
the two heads: the class scores are the mean of the classifier and of a head that a teacher trained.
"""

from torch import Tensor, nn

from pocketune.networks.architectures.parts import (
    SqueezeExcite,
    blocks_at,
    convolution,
    initialize,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

CHANNELS = 48
"""Of the first stage; each one after it has twice as many."""
BLOCKS = (2, 2, 14, 2)


class ConvNorm(nn.Sequential):
    """Convolution `c` and norm `bn`."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: str,
    ) -> None:
        super().__init__()
        self.c = convolution(inputs, outputs, kernel, stride=stride, groups=groups, padding=padding)
        self.bn = nn.BatchNorm2d(outputs)


class TokenMixer(nn.Module):
    """Depthwise 3x3 and 1x1 convolutions and the input, added and normalized."""

    def __init__(self, channels: int, *, padding: str) -> None:
        super().__init__()
        self.conv = ConvNorm(channels, channels, 3, groups=channels, padding=padding)
        self.conv1 = nn.Conv2d(channels, channels, 1, groups=channels)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = self.bn(self.conv(x) + self.conv1(x) + x)
        return y


class ChannelMixer(nn.Module):
    """1x1 convolution to twice the channels, GELU, 1x1 convolution back, each with a norm."""

    def __init__(self, channels: int, *, padding: str) -> None:
        super().__init__()
        self.conv1 = ConvNorm(channels, 2 * channels, padding=padding)
        self.act = nn.GELU()
        self.conv2 = ConvNorm(2 * channels, channels, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        y: Tensor = self.conv2(self.act(self.conv1(x)))
        return y


class RepViTBlock(nn.Module):
    """Token mixer, squeeze-excite in every other block, channel mixer with a shortcut."""

    def __init__(self, channels: int, *, squeeze_excite: bool, padding: str) -> None:
        super().__init__()
        self.token_mixer = TokenMixer(channels, padding=padding)
        self.se = (
            SqueezeExcite(channels, make_divisible(channels / 4), gate=nn.Sigmoid)
            if squeeze_excite
            else nn.Identity()
        )
        self.channel_mixer = ChannelMixer(channels, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        x = self.se(self.token_mixer(x))
        y: Tensor = x + self.channel_mixer(x)
        return y


class Downsample(nn.Module):
    """A block, a strided depthwise convolution, a 1x1 convolution, and a channel mixer."""

    def __init__(self, inputs: int, outputs: int, *, padding: str) -> None:
        super().__init__()
        self.pre_block = RepViTBlock(inputs, squeeze_excite=False, padding=padding)
        self.spatial_downsample = ConvNorm(
            inputs, inputs, 3, stride=2, groups=inputs, padding=padding
        )
        self.channel_downsample = ConvNorm(inputs, outputs, padding=padding)
        self.ffn = ChannelMixer(outputs, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2)."""
        x = self.channel_downsample(self.spatial_downsample(self.pre_block(x)))
        y: Tensor = x + self.ffn(x)
        return y


class Stage(nn.Module):
    """`downsample`, except in the first stage, and `blocks`."""

    def __init__(self, inputs: int, outputs: int, blocks: int, *, padding: str) -> None:
        super().__init__()
        self.downsample = (
            nn.Identity() if inputs == outputs else Downsample(inputs, outputs, padding=padding)
        )
        self.blocks = nn.Sequential(
            *(
                RepViTBlock(outputs, squeeze_excite=place % 2 == 0, padding=padding)
                for place in range(blocks)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / 2, W / 2), or of the same size."""
        y: Tensor = self.blocks(self.downsample(x))
        return y


class Stem(nn.Module):
    """Two strided 3x3 convolutions with a GELU between them."""

    def __init__(self, channels: int, *, padding: str) -> None:
        super().__init__()
        self.conv1 = ConvNorm(3, channels // 2, 3, stride=2, padding=padding)
        self.act1 = nn.GELU()
        self.conv2 = ConvNorm(channels // 2, channels, 3, stride=2, padding=padding)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, C, H / 4, W / 4)."""
        y: Tensor = self.conv2(self.act1(self.conv1(x)))
        return y


class NormLinear(nn.Sequential):
    """Norm `bn` and linear layer `l`."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)
        self.l = nn.Linear(channels, classes)


class Heads(nn.Module):
    """The mean of two linear layers behind norms."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.head = NormLinear(channels, classes)
        self.head_dist = NormLinear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C) -> (N, classes)."""
        logits: Tensor = (self.head(x) + self.head_dist(x)) / 2
        return logits


class RepViT(nn.Module):
    """`stem`, four `stages`, global average pooling, `head`."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        padding, first = config.padding, make_divisible(CHANNELS * config.width)
        self.stem = Stem(first, padding=padding)
        channels = [first * 2**place for place in range(4)]
        before = [first, *channels[:-1]]
        blocks = [blocks_at(config.depth, count) for count in BLOCKS]
        self.stages = nn.Sequential(
            *(
                Stage(inputs, outputs, count, padding=padding)
                for inputs, outputs, count in zip(before, channels, blocks, strict=True)
            )
        )
        self.head = Heads(channels[-1], config.classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.head(self.stages(self.stem(x)).mean((2, 3)))
        return logits


@register_network("repvit_m0_9", has_depth=True, has_stages=False)
def repvit_m0_9(config: NetworkConfig) -> nn.Module:
    """RepViT-M0.9 at any width and depth."""
    return RepViT(config)
