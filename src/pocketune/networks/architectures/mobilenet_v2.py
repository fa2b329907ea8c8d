"""MobileNetV2 (Sandler et al., 2018), with torchvision's module and parameter names."""

from torch import nn

from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    OutputStride,
    PlainNetwork,
    make_divisible,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

STAGES = (  # expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@register_network("mobilenet_v2")
def mobilenet_v2(config: NetworkConfig) -> nn.Module:
    """MobileNetV2 at any width; its feature fusion never has fewer than 1280 channels.

    Beyond the output stride, the first block of a stage is dilated and the others are not, as in
    MMSegmentation's.
    """
    reach = OutputStride(config.output_stride)
    inputs = make_divisible(32 * config.width)
    features: list[nn.Module] = [ConvNormActivation(3, inputs, 3, stride=2, padding=config.padding)]
    for expansion, channels, blocks, first_stride in STAGES:
        outputs = make_divisible(channels * config.width)
        for index in range(blocks):
            full_stride = first_stride if index == 0 else 1
            stride, dilation = reach(full_stride)
            block = InvertedResidual(
                inputs,
                inputs * expansion,
                outputs,
                stride=stride,
                dilation=dilation if index == 0 else 1,
                residual=full_stride == 1,
                padding=config.padding,
            )
            features.append(block)
            inputs = outputs
    if config.feature_fusion:
        outputs = make_divisible(1280 * max(1.0, config.width))
        features.append(ConvNormActivation(inputs, outputs))
        inputs = outputs
    classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(inputs, config.classes))
    return PlainNetwork(features, classifier, reach.reached)
