"""MCUNet-5fps (Lin et al., 2020): searched for a microcontroller at five frames a second."""

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    OutputStride,
    PlainNetwork,
)
from pocketune.networks.config import NetworkConfig
from pocketune.networks.registry import register_network

STEM = 16
BLOCKS = (  # channels expanded, channels out, kernel, stride
    (16, 8, 3, 1),
    (32, 16, 3, 2),
    (48, 16, 3, 1),
    (48, 24, 7, 2),
    (120, 24, 3, 1),
    (120, 40, 3, 2),
    (160, 40, 7, 1),
    (160, 48, 5, 1),
    (144, 48, 3, 1),
    (192, 48, 3, 1),
    (240, 96, 7, 2),
    (384, 96, 5, 1),
    (384, 96, 5, 1),
    (576, 160, 3, 1),
)


@register_network("mcunet_5fps")
def mcunet_5fps(config: NetworkConfig) -> nn.Module:
    """MCUNet-5fps; it has no feature-fusion layer, so `config.feature_fusion` changes nothing.

    Raises:
        PocketuneError: For a width other than 1, since each channel count was searched.
    """
    if config.width != 1:
        raise PocketuneError(f"mcunet_5fps exists at width 1 only, not {config.width}")
    features: list[nn.Module] = [ConvNormActivation(3, STEM, 3, stride=2, padding=config.padding)]
    reach = OutputStride(config.output_stride)
    inputs = STEM
    for middle, outputs, kernel, full_stride in BLOCKS:
        stride, dilation = reach(full_stride)
        block = InvertedResidual(
            inputs,
            middle,
            outputs,
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            residual=full_stride == 1,
            padding=config.padding,
        )
        features.append(block)
        inputs = outputs
    classifier = nn.Sequential(nn.Linear(inputs, config.classes))
    return PlainNetwork(features, classifier, reach.reached)
