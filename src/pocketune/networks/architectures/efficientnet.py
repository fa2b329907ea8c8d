"""EfficientNet-B0 and EfficientNetV2-S (Tan and Le, 2019 and 2021), with torchvision's names.

Stochastic depth is left out: it has no parameters, and short fine-tuning does not need it.
"""

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    Norm,
    OutputStride,
    PlainNetwork,
    SqueezeExcite,
    blocks_at,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

FUSION = 1280
"""Channels of the last convolution at width 1."""


class Row(NamedTuple):
    """One row of the papers' tables; a fused block has one dense convolution for two."""

    fused: bool
    expansion: int
    kernel: int
    stride: int
    outputs: int
    blocks: int


B0 = (
    Row(False, 1, 3, 1, 16, 1),
    Row(False, 6, 3, 2, 24, 2),
    Row(False, 6, 5, 2, 40, 2),
    Row(False, 6, 3, 2, 80, 3),
    Row(False, 6, 5, 1, 112, 3),
    Row(False, 6, 5, 2, 192, 4),
    Row(False, 6, 3, 1, 320, 1),
)
V2_S = (
    Row(True, 1, 3, 1, 24, 2),
    Row(True, 4, 3, 2, 48, 4),
    Row(True, 4, 3, 2, 64, 4),
    Row(False, 4, 3, 2, 128, 6),
    Row(False, 6, 3, 1, 160, 9),
    Row(False, 6, 3, 2, 256, 15),
)


class MBConv(nn.Module):
    """Inverted residual with squeeze-excite after the depthwise convolution.

    A fused one has a dense k x k convolution in place of expansion and depthwise convolution, and
    no squeeze-excite; without expansion, it is that convolution alone. `block` holds the layers in
    order. Stride and dilation are those of the k x k convolution; `residual` adds the input.
    """

    def __init__(
        self,
        inputs: int,
        row: Row,
        *,
        outputs: int,
        stride: int,
        dilation: int,
        residual: bool,
        norm: Norm,
        padding: str,
    ) -> None:
        super().__init__()
        middle = make_divisible(inputs * row.expansion)
        layer = partial(ConvNormActivation, norm=norm, padding=padding)
        spatial = partial(
            layer, kernel=row.kernel, stride=stride, dilation=dilation, activation=nn.SiLU
        )
        layers: list[nn.Module] = []
        if row.fused:
            layers.append(spatial(inputs, outputs if middle == inputs else middle))
        else:
            if middle != inputs:
                layers.append(layer(inputs, middle, activation=nn.SiLU))
            layers.append(spatial(middle, middle, groups=middle))
            squeezed = max(1, inputs // 4)
            layers.append(SqueezeExcite(middle, squeezed, activation=nn.SiLU, gate=nn.Sigmoid))
        if not (row.fused and middle == inputs):
            layers.append(layer(middle, outputs, activation=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = residual and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.block(x)
        return x + y if self.use_res_connect else y


def _efficientnet(
    config: NetworkConfig, table: tuple[Row, ...], *, stem: int, norm: Norm
) -> nn.Module:
    """`stem` is the number of channels of the first convolution at width 1."""
    reach = OutputStride(config.output_stride)
    layer = partial(ConvNormActivation, norm=norm, activation=nn.SiLU, padding=config.padding)
    inputs = make_divisible(stem * config.width)
    features: list[nn.Module] = [layer(3, inputs, 3, stride=2)]
    for row in table:
        outputs = make_divisible(row.outputs * config.width)
        full_stride, blocks = row.stride, []
        stride, dilation = reach(full_stride)
        for _ in range(blocks_at(config.depth, row.blocks)):
            blocks.append(
                MBConv(
                    inputs,
                    row,
                    outputs=outputs,
                    stride=stride,
                    dilation=dilation,
                    residual=full_stride == 1,
                    norm=norm,
                    padding=config.padding,
                )
            )
            inputs, stride, full_stride = outputs, 1, 1
        features.append(nn.Sequential(*blocks))
    if config.feature_fusion:
        outputs = make_divisible(FUSION * config.width)
        features.append(layer(inputs, outputs))
        inputs = outputs
    classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, config.classes))
    return PlainNetwork(features, classifier, reach.reached)


@register_network("efficientnet_b0", has_depth=True)
def efficientnet_b0(config: NetworkConfig) -> nn.Module:
    """EfficientNet-B0 at any width and depth."""
    return _efficientnet(config, B0, stem=32, norm=nn.BatchNorm2d)


@register_network("efficientnet_v2_s", has_depth=True)
def efficientnet_v2_s(config: NetworkConfig) -> nn.Module:
    """EfficientNetV2-S at any width and depth."""
    return _efficientnet(config, V2_S, stem=24, norm=partial(nn.BatchNorm2d, eps=1e-3))
