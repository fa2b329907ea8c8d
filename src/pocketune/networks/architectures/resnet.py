"""ResNet-18, -34, -50 and -101 (He et al., 2016), with torchvision's module and parameter names.

ResNet-18-V1c (He et al., 2019) is MMSegmentation's: three 3x3 convolutions for the 7x7 one.
"""

from functools import partial

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    OutputStride,
    Stage,
    convolution,
    initialize,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block
STEM_STRIDES = {"stem": 2, "conv1": 2, "bn1": 2, "relu": 2, "maxpool": 4}
STRIDES = {**STEM_STRIDES, "layer1": 4, "layer2": 8, "layer3": 16, "layer4": 32}  # undilated


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The shortcut's 1x1 convolution, where the input itself would not fit."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; `relu` serves after the first and after the sum.

    The first one may be dilated.
    """

    widening = 1

    def __init__(self, inputs: int, channels: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, channels, 3, stride=stride, dilation=dilation)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.conv2 = convolution(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _downsample(inputs, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, channels, H / stride, W / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = y + (x if self.downsample is None else self.downsample(x))
        out: Tensor = self.relu(y)
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3 (with stride and dilation, as torchvision's), 1x1 convolution and a shortcut."""

    widening = 4

    def __init__(self, inputs: int, channels: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        outputs = channels * self.widening
        self.conv1 = convolution(inputs, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels, 3, stride=stride, dilation=dilation)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = convolution(channels, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = _downsample(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, 4 * channels, H / stride, W / stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y = y + (x if self.downsample is None else self.downsample(x))
        out: Tensor = self.relu(y)
        return out


class ResNet(nn.Module):
    """7x7 stem and max pooling, four stages `layer1` to `layer4`, pooling, `fc`.

    With `deep_stem`, three 3x3 convolutions named `stem` take the place of the 7x7 one. Beyond the
    output stride, a stage is dilated; its first block has the dilation of the stage before.
    There is no feature-fusion layer, so `config.feature_fusion` changes nothing.
    """

    def __init__(
        self,
        config: NetworkConfig,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        deep_stem: bool = False,
    ) -> None:
        if config.padding != "symmetric":
            raise PocketuneError(f"{config.name} exists with padding='symmetric' only")
        super().__init__()
        inputs = make_divisible(64 * config.width)
        if deep_stem:
            self.stem = _deep_stem(make_divisible(32 * config.width), inputs)
        else:
            self.conv1 = convolution(3, inputs, 7, stride=2)
            self.bn1 = nn.BatchNorm2d(inputs)
            self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        reach, before = OutputStride(config.output_stride, stem=4), 1
        stages = []
        for depth, (base, first_stride) in zip(depths, STAGES, strict=True):
            channels = make_divisible(base * config.width)
            stride, dilation = reach(first_stride)
            blocks = [block(inputs, channels, stride, before)]
            inputs = channels * block.widening
            blocks += [block(inputs, channels, 1, dilation) for _ in range(depth - 1)]
            stages.append(nn.Sequential(*blocks))
            before = dilation
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, config.classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        for stage in self.stages():
            x = stage.module(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits

    def stages(self, *, feature_fusion: bool = False) -> list[Stage]:  # noqa: ARG002 (has none)
        """Stem, max pooling and the four stages."""
        parts = ((name, stride) for name, stride in STRIDES.items() if hasattr(self, name))
        return [Stage(name, self.get_submodule(name), stride) for name, stride in parts]


def _deep_stem(middle: int, outputs: int) -> nn.Sequential:
    """Convolution, norm and ReLU three times, in one row as in MMSegmentation."""
    layer = partial(ConvNormActivation, kernel=3, activation=nn.ReLU)
    layers = (layer(3, middle, stride=2), layer(middle, middle), layer(middle, outputs))
    return nn.Sequential(*(module for each in layers for module in each))


@register_network("resnet18")
def resnet18(config: NetworkConfig) -> nn.Module:
    """ResNet-18 at any width."""
    return ResNet(config, BasicBlock, (2, 2, 2, 2))


@register_network("resnet18_v1c")
def resnet18_v1c(config: NetworkConfig) -> nn.Module:
    """ResNet-18 with a stem of three 3x3 convolutions, at any width."""
    return ResNet(config, BasicBlock, (2, 2, 2, 2), deep_stem=True)


@register_network("resnet34")
def resnet34(config: NetworkConfig) -> nn.Module:
    """ResNet-34 at any width."""
    return ResNet(config, BasicBlock, (3, 4, 6, 3))


@register_network("resnet50")
def resnet50(config: NetworkConfig) -> nn.Module:
    """ResNet-50 at any width."""
    return ResNet(config, Bottleneck, (3, 4, 6, 3))


@register_network("resnet101")
def resnet101(config: NetworkConfig) -> nn.Module:
    """ResNet-101 at any width."""
    return ResNet(config, Bottleneck, (3, 4, 23, 3))
