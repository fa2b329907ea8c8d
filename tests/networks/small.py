"""A network of our own blocks, with few of them: compiled in a moment."""

from torch import nn

from pocketune.networks.architectures.parts import (
    ConvNormActivation,
    InvertedResidual,
    PlainNetwork,
)


def small_mobilenet(classes: int = 3, padding: str = "symmetric") -> nn.Module:
    """MobileNetV2 with one block of each kind: unexpanded, strided, residual, and wider."""
    blocks = [
        InvertedResidual(8, 8, 8, padding=padding),
        InvertedResidual(8, 48, 16, stride=2, padding=padding),
        InvertedResidual(16, 96, 16, padding=padding),
        InvertedResidual(16, 96, 24, stride=2, padding=padding),
    ]
    stem = ConvNormActivation(3, 8, 3, stride=2, padding=padding)
    fusion = ConvNormActivation(24, 64)
    classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, classes))
    return PlainNetwork([stem, *blocks, fusion], classifier)
