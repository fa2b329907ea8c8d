"""MobileNetV3-Small and -Large (Howard et al., 2019), with torchvision's names."""

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from pocketune.networks.architectures.parts import (
    Activation,
    ConvNormActivation,
    Norm,
    OutputStride,
    PlainNetwork,
    SqueezeExcite,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network


class Row(NamedTuple):
    """One row of the paper's tables 1 and 2; `middle` counts the expanded channels."""

    kernel: int
    middle: int
    outputs: int
    squeeze_excite: bool
    hard_swish: bool
    stride: int


SMALL = (
    Row(3, 16, 16, True, False, 2),
    Row(3, 72, 24, False, False, 2),
    Row(3, 88, 24, False, False, 1),
    Row(5, 96, 40, True, True, 2),
    Row(5, 240, 40, True, True, 1),
    Row(5, 240, 40, True, True, 1),
    Row(5, 120, 48, True, True, 1),
    Row(5, 144, 48, True, True, 1),
    Row(5, 288, 96, True, True, 2),
    Row(5, 576, 96, True, True, 1),
    Row(5, 576, 96, True, True, 1),
)
LARGE = (
    Row(3, 16, 16, False, False, 1),
    Row(3, 64, 24, False, False, 2),
    Row(3, 72, 24, False, False, 1),
    Row(5, 72, 40, True, False, 2),
    Row(5, 120, 40, True, False, 1),
    Row(5, 120, 40, True, False, 1),
    Row(3, 240, 80, False, True, 2),
    Row(3, 200, 80, False, True, 1),
    Row(3, 184, 80, False, True, 1),
    Row(3, 184, 80, False, True, 1),
    Row(3, 480, 112, True, True, 1),
    Row(3, 672, 112, True, True, 1),
    Row(5, 672, 160, True, True, 2),
    Row(5, 960, 160, True, True, 1),
    Row(5, 960, 160, True, True, 1),
)
NORM: Norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


class InvertedResidualV3(nn.Module):
    """Inverted residual with squeeze-excite after the depthwise convolution's activation.

    `block` holds the layers in order, each a ConvNormActivation or a SqueezeExcite. Stride and
    dilation are those of the depthwise convolution; `row.stride` is the undilated stride.
    """

    def __init__(self, inputs: int, row: Row, *, stride: int, dilation: int, padding: str) -> None:
        super().__init__()
        activation: Activation = nn.Hardswish if row.hard_swish else nn.ReLU
        layer = partial(ConvNormActivation, norm=NORM, padding=padding)
        middle = row.middle
        layers: list[nn.Module] = []
        if middle != inputs:
            layers.append(layer(inputs, middle, activation=activation))
        layers.append(
            layer(
                middle,
                middle,
                row.kernel,
                stride=stride,
                groups=middle,
                dilation=dilation,
                activation=activation,
            )
        )
        if row.squeeze_excite:
            layers.append(SqueezeExcite(middle, make_divisible(middle // 4)))
        layers.append(layer(middle, row.outputs, activation=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = row.stride == 1 and inputs == row.outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.block(x)
        return x + y if self.use_res_connect else y


def _mobilenet_v3(config: NetworkConfig, table: tuple[Row, ...], hidden: int) -> nn.Module:
    """`hidden` is the number of units of the classifier's first linear layer.

    Beyond the output stride all blocks are dilated, as in torchvision's segmentation networks.
    """
    reach = OutputStride(config.output_stride)
    layer = partial(ConvNormActivation, norm=NORM, activation=nn.Hardswish)
    inputs = make_divisible(16 * config.width)
    features: list[nn.Module] = [layer(3, inputs, 3, stride=2, padding=config.padding)]
    for full in table:
        stride, dilation = reach(full.stride)
        row = full._replace(
            middle=make_divisible(full.middle * config.width),
            outputs=make_divisible(full.outputs * config.width),
        )
        features.append(
            InvertedResidualV3(
                inputs, row, stride=stride, dilation=dilation, padding=config.padding
            )
        )
        inputs = row.outputs
    if config.feature_fusion:
        features.append(layer(inputs, 6 * inputs))
        inputs *= 6
    hidden = make_divisible(hidden * config.width)
    classifier = nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.Hardswish(),
        nn.Dropout(0.2),
        nn.Linear(hidden, config.classes),
    )
    return PlainNetwork(features, classifier, reach.reached)


@register_network("mobilenet_v3_small")
def mobilenet_v3_small(config: NetworkConfig) -> nn.Module:
    """MobileNetV3-Small at any width."""
    return _mobilenet_v3(config, SMALL, 1024)


@register_network("mobilenet_v3_large")
def mobilenet_v3_large(config: NetworkConfig) -> nn.Module:
    """MobileNetV3-Large at any width."""
    return _mobilenet_v3(config, LARGE, 1280)
