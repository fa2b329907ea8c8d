"""MobileNetV4-Conv-Small (Qin et al., 2024), with the names of timm's `mobilenetv4_conv_small`."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from pocketune.networks.architectures.parts import (
    Activation,
    blocks_at,
    convolution,
    initialize,
    make_divisible,
)
from pocketune.networks.architectures.timm_parts import ConvNorm
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network


class Conv(NamedTuple):
    """A convolution with norm and ReLU as a row of the paper's table 11."""

    kernel: int
    stride: int
    outputs: int


class Universal(NamedTuple):
    """A universal inverted bottleneck as a row of the table; a kernel of 0 leaves the layer out."""

    start: int
    middle: int
    stride: int
    expansion: float
    outputs: int


SMALL: tuple[tuple[Conv | Universal, ...], ...] = (
    (Conv(3, 2, 32), Conv(1, 1, 32)),
    (Conv(3, 2, 96), Conv(1, 1, 64)),
    (
        Universal(5, 5, 2, 3, 96),
        Universal(0, 3, 1, 2, 96),
        Universal(0, 3, 1, 2, 96),
        Universal(0, 3, 1, 2, 96),
        Universal(0, 3, 1, 2, 96),
        Universal(3, 0, 1, 4, 96),
    ),
    (
        Universal(3, 3, 2, 6, 128),
        Universal(5, 5, 1, 4, 128),
        Universal(0, 5, 1, 4, 128),
        Universal(0, 5, 1, 3, 128),
        Universal(0, 3, 1, 4, 128),
        Universal(0, 3, 1, 4, 128),
    ),
    (Conv(1, 1, 960),),
)


class ConvBlock(nn.Module):
    """Convolution `conv`, norm `bn1` and ReLU: a whole block in the first and last stages."""

    def __init__(self, inputs: int, row: Conv, outputs: int, *, padding: str) -> None:
        super().__init__()
        self.conv = convolution(inputs, outputs, row.kernel, stride=row.stride, padding=padding)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.act(self.bn1(self.conv(x)))
        return y


def _depthwise(
    channels: int, kernel: int, stride: int, *, activation: Activation, padding: str
) -> nn.Module:
    """A depthwise layer; nothing for a kernel of 0."""
    if kernel == 0:
        return nn.Identity()
    options: dict[str, Any] = {"stride": stride, "activation": activation, "padding": padding}
    return ConvNorm(channels, channels, kernel, groups=channels, **options)


class UniversalInvertedBottleneck(nn.Module):
    """Inverted residual with a depthwise convolution before the expansion, after it, or both.

    A row without the second one is a ConvNeXt-like block, one with both the paper's "ExtraDW". The
    stride is that of the second depthwise convolution where there is one.
    """

    def __init__(self, inputs: int, row: Universal, outputs: int, *, padding: str) -> None:
        super().__init__()
        middle = make_divisible(inputs * row.expansion)
        before = 1 if row.middle else row.stride
        self.dw_start = _depthwise(
            inputs, row.start, before, activation=nn.Identity, padding=padding
        )
        self.pw_exp = ConvNorm(inputs, middle, activation=nn.ReLU)
        self.dw_mid = _depthwise(
            middle, row.middle, row.stride, activation=nn.ReLU, padding=padding
        )
        self.pw_proj = ConvNorm(middle, outputs)
        self.has_skip = row.stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.pw_proj(self.dw_mid(self.pw_exp(self.dw_start(x))))
        return x + y if self.has_skip else y


class MobileNetV4(nn.Module):
    """Stem, stages `blocks`, global average pooling, `conv_head` and `classifier`.

    The 1x1 convolution `conv_head` runs after the pooling, on a map of one pixel.
    """

    def __init__(
        self, config: NetworkConfig, table: tuple[tuple[Conv | Universal, ...], ...]
    ) -> None:
        super().__init__()
        width = config.width
        inputs = make_divisible(32 * width)
        self.conv_stem = convolution(3, inputs, 3, stride=2, padding=config.padding)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.act1 = nn.ReLU()
        stages = []
        for rows in table:
            blocks: list[nn.Module] = []
            for row in rows[: blocks_at(config.depth, len(rows))]:
                outputs = make_divisible(row.outputs * width)
                if isinstance(row, Conv):
                    blocks.append(ConvBlock(inputs, row, outputs, padding=config.padding))
                else:
                    blocks.append(
                        UniversalInvertedBottleneck(inputs, row, outputs, padding=config.padding)
                    )
                inputs = outputs
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        outputs = make_divisible(1280 * width)
        self.conv_head = convolution(inputs, outputs)
        self.norm_head = nn.BatchNorm2d(outputs)
        self.act2 = nn.ReLU()
        self.classifier = nn.Linear(outputs, config.classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        x = self.blocks(self.act1(self.bn1(self.conv_stem(x))))
        x = x.mean((2, 3), keepdim=True)
        x = self.act2(self.norm_head(self.conv_head(x)))
        logits: Tensor = self.classifier(x.flatten(1))
        return logits


@register_network("mobilenet_v4_small", has_depth=True, has_stages=False)
def mobilenet_v4_small(config: NetworkConfig) -> nn.Module:
    """MobileNetV4-Conv-Small at any width; a depth below 1 leaves out the last rows of stages."""
    return MobileNetV4(config, SMALL)
