"""ProxylessNAS-Mobile (Cai et al., 2019): inverted residuals of searched kernel and expansion."""

import math
from functools import partial

from torch import nn

from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    OutputStride,
    PlainNetwork,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

BLOCKS = (  # channels out, expansion, kernel, stride; the blocks that the search skipped left out
    (16, 1, 3, 1),
    (32, 3, 5, 2),
    (32, 3, 3, 1),
    (40, 3, 7, 2),
    (40, 3, 3, 1),
    (40, 3, 5, 1),
    (40, 3, 5, 1),
    (80, 6, 7, 2),
    (80, 3, 5, 1),
    (80, 3, 5, 1),
    (80, 3, 5, 1),
    (96, 6, 5, 1),
    (96, 3, 5, 1),
    (96, 3, 5, 1),
    (96, 3, 5, 1),
    (192, 6, 7, 2),
    (192, 6, 7, 1),
    (192, 3, 7, 1),
    (192, 3, 7, 1),
    (320, 6, 7, 1),
)
EPS = 1e-3


@register_network("proxylessnas_mobile")
def proxylessnas_mobile(config: NetworkConfig) -> nn.Module:
    """ProxylessNAS-Mobile; narrower channels are rounded up, as in the published width 0.3."""
    layer = partial(ConvNormActivation, norm=partial(nn.BatchNorm2d, eps=EPS))
    reach = OutputStride(config.output_stride)
    inputs = _scale(32, config.width)
    features: list[nn.Module] = [layer(3, inputs, 3, stride=2, padding=config.padding)]
    for channels, expansion, kernel, full_stride in BLOCKS:
        outputs = _scale(channels, config.width)
        stride, dilation = reach(full_stride)
        block = InvertedResidual(
            inputs,
            inputs * expansion,
            outputs,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            residual=full_stride == 1,
            padding=config.padding,
            eps=EPS,
        )
        features.append(block)
        inputs = outputs
    if config.feature_fusion:
        outputs = _scale(1280, max(1.0, config.width))
        features.append(layer(inputs, outputs))
        inputs = outputs
    classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, config.classes))
    return PlainNetwork(features, classifier, reach.reached)


def _scale(channels: int, width: float) -> int:
    """Next multiple of 8; rounded first, so that 80 * 0.3 is 24 whatever floats make of it."""
    return math.ceil(round(channels * width, 6) / 8) * 8
