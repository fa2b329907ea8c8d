"""EfficientNet-Lite0 (Google, 2020): B0 without squeeze-excite and with ReLU6, with timm's names.

With `padding="symmetric"` it is timm's `efficientnet_lite0`, with `padding="same"` the original,
`tf_efficientnet_lite0`.
"""

from typing import NamedTuple

from torch import Tensor, nn

from pocketune.networks.architectures.efficientnet import B0
from pocketune.networks.architectures.parts import (
    OutputStride,
    Stage,
    blocks_at,
    convolution,
    initialize,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

EPS = {"symmetric": 1e-5, "same": 1e-3}
"""Of the batch norms, as PyTorch and TensorFlow have them."""


class Spatial(NamedTuple):
    """Options of a block's depthwise convolution."""

    kernel: int
    stride: int
    dilation: int
    padding: str

    def depthwise(self, channels: int) -> nn.Conv2d:
        """The convolution, from channels to channels."""
        return convolution(channels, channels, groups=channels, **self._asdict())


class DepthwiseSeparable(nn.Module):
    """Depthwise k x k convolution and 1x1 projection, each with a norm."""

    def __init__(self, inputs: int, outputs: int, *, spatial: Spatial, residual: bool) -> None:
        super().__init__()
        eps = EPS[spatial.padding]
        self.conv_dw = spatial.depthwise(inputs)
        self.bn1 = nn.BatchNorm2d(inputs, eps=eps)
        self.act1 = nn.ReLU6()
        self.conv_pw = convolution(inputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs, eps=eps)
        self.has_skip = residual and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.act1(self.bn1(self.conv_dw(x)))
        y = self.bn2(self.conv_pw(y))
        return x + y if self.has_skip else y


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise k x k, 1x1 projection, under timm's names."""

    def __init__(
        self, inputs: int, middle: int, outputs: int, *, spatial: Spatial, residual: bool
    ) -> None:
        super().__init__()
        eps = EPS[spatial.padding]
        self.conv_pw = convolution(inputs, middle)
        self.bn1 = nn.BatchNorm2d(middle, eps=eps)
        self.act1 = nn.ReLU6()
        self.conv_dw = spatial.depthwise(middle)
        self.bn2 = nn.BatchNorm2d(middle, eps=eps)
        self.act2 = nn.ReLU6()
        self.conv_pwl = convolution(middle, outputs)
        self.bn3 = nn.BatchNorm2d(outputs, eps=eps)
        self.has_skip = residual and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.act1(self.bn1(self.conv_pw(x)))
        y = self.act2(self.bn2(self.conv_dw(y)))
        y = self.bn3(self.conv_pwl(y))
        return x + y if self.has_skip else y


def _block(
    inputs: int, expansion: int, outputs: int, *, spatial: Spatial, residual: bool
) -> nn.Module:
    if expansion == 1:
        return DepthwiseSeparable(inputs, outputs, spatial=spatial, residual=residual)
    middle = inputs * expansion
    return InvertedResidual(inputs, middle, outputs, spatial=spatial, residual=residual)


class EfficientNetLite(nn.Module):
    """Stem, stages of blocks, 1x1 `conv_head`, global average pooling, `classifier`."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        eps, width = EPS[config.padding], config.width
        reach, before = OutputStride(config.output_stride), 1
        inputs = make_divisible(32 * width)
        self.conv_stem = convolution(3, inputs, 3, stride=2, padding=config.padding)
        self.bn1 = nn.BatchNorm2d(inputs, eps=eps)
        self.act1 = nn.ReLU6()
        stages = []
        for row in B0:
            outputs, blocks = make_divisible(row.outputs * width), []
            stride, dilation = reach(row.stride)
            for number in range(blocks_at(config.depth, row.blocks)):
                first = number == 0
                at = (stride, before) if first else (1, dilation)
                spatial = Spatial(row.kernel, *at, config.padding)
                residual = not first or row.stride == 1
                blocks.append(
                    _block(inputs, row.expansion, outputs, spatial=spatial, residual=residual)
                )
                inputs = outputs
            stages.append(nn.Sequential(*blocks))
            before = dilation
        self.blocks = nn.Sequential(*stages)
        outputs = make_divisible(1280 * width)
        self.conv_head = convolution(inputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs, eps=eps)
        self.act2 = nn.ReLU6()
        self.classifier = nn.Linear(outputs, config.classes)
        self.reached = tuple(reach.reached)
        initialize(self)

    def stages(self, *, feature_fusion: bool) -> list[Stage]:
        """Stem and blocks, and the feature-fusion layer on request."""
        first, *strides = self.reached
        parts: list[tuple[nn.Module, int]] = [
            (nn.Sequential(self.conv_stem, self.bn1, self.act1), first),
            *(
                (block, stride)
                for stage, stride in zip(self.blocks.children(), strides, strict=True)
                for block in stage.children()
            ),
        ]
        if feature_fusion:
            fusion = nn.Sequential(self.conv_head, self.bn2, self.act2)
            parts.append((fusion, strides[-1]))
        return [Stage(str(place), *part) for place, part in enumerate(parts)]

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        x = self.act1(self.bn1(self.conv_stem(x)))
        x = self.act2(self.bn2(self.conv_head(self.blocks(x))))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


@register_network("efficientnet_lite0", has_depth=True)
def efficientnet_lite0(config: NetworkConfig) -> nn.Module:
    """EfficientNet-Lite0 at any width and depth; it always has its feature fusion."""
    return EfficientNetLite(config)
