"""ResNet-18, -34 and -50 (He et al., 2016), with torchvision's module and parameter names."""

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.architectures.parts import convolution, initialize, make_divisible
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first block


def _downsample(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The shortcut's 1x1 convolution, where the input itself would not fit."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(convolution(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; `relu` serves after the first and after the sum."""

    widening = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, channels, 3, stride=stride)
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
    """1x1, 3x3 (with the stride, as torchvision's) and 1x1 convolution and a shortcut."""

    widening = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * self.widening
        self.conv1 = convolution(inputs, channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels, 3, stride=stride)
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
    """7x7 stem and max pooling, four stages `layer1` to `layer4`, pooling, `fc`."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        classes: int,
        width: float,
    ) -> None:
        super().__init__()
        inputs = make_divisible(64 * width)
        self.conv1 = convolution(3, inputs, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages = []
        for depth, (base, first_stride) in zip(depths, STAGES, strict=True):
            channels = make_divisible(base * width)
            blocks = []
            for index in range(depth):
                blocks.append(block(inputs, channels, first_stride if index == 0 else 1))
                inputs = channels * block.widening
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(inputs, classes)
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        y = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        logits: Tensor = self.fc(y.mean((2, 3)))
        return logits


def _resnet(
    config: NetworkConfig,
    block: type[BasicBlock | Bottleneck],
    depths: tuple[int, int, int, int],
) -> nn.Module:
    """ResNets have no feature-fusion layer, so `config.feature_fusion` changes nothing."""
    if config.padding != "symmetric":
        raise PocketuneError(f"{config.name} exists with padding='symmetric' only")
    return ResNet(block, depths, classes=config.classes, width=config.width)


@register_network("resnet18")
def resnet18(config: NetworkConfig) -> nn.Module:
    """ResNet-18 at any width."""
    return _resnet(config, BasicBlock, (2, 2, 2, 2))


@register_network("resnet34")
def resnet34(config: NetworkConfig) -> nn.Module:
    """ResNet-34 at any width."""
    return _resnet(config, BasicBlock, (3, 4, 6, 3))


@register_network("resnet50")
def resnet50(config: NetworkConfig) -> nn.Module:
    """ResNet-50 at any width."""
    return _resnet(config, Bottleneck, (3, 4, 6, 3))
