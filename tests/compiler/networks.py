"""A network small enough to trace in a moment, with everything that a real one has."""

from typing import TypeVar

import torch
from torch import Tensor, nn

from pocketune.networks.architectures.parts import ConvNormActivation, SqueezeExcite
from pocketune.tasks import Classification, numbered

BATCH, SIZE, CLASSES = 4, 16, 3
HEAD = ("classifier.weight", "classifier.bias")
Net = TypeVar("Net", bound=nn.Module)
TASK = Classification(numbered(CLASSES), HEAD)


class Block(nn.Module):
    """Inverted residual with squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = ConvNormActivation(channels, 2 * channels)
        self.depthwise = ConvNormActivation(2 * channels, 2 * channels, 3, groups=2 * channels)
        self.excite = SqueezeExcite(2 * channels, 2)
        self.project = ConvNormActivation(2 * channels, channels, activation=None)
        self.use_res_connect = True

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        return x + self.project(self.excite(self.depthwise(self.expand(x))))


class TinyNetwork(nn.Module):
    """Not one of the registry's: to Pocketune it is foreign."""

    def __init__(self, *, blocks: int = 2, channels: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = ConvNormActivation(3, channels, 3, stride=2)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, CLASSES)."""
        x = self.pool(self.blocks(self.stem(x))).flatten(1)
        logits: Tensor = self.classifier(self.dropout(x))
        return logits


def with_norms(network: Net) -> Net:
    """The network, whose norms get something to do."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
    return network


def tiny(seed: int = 0, **options: float) -> TinyNetwork:
    """A network whose norms have something to do."""
    torch.manual_seed(seed)
    return with_norms(TinyNetwork(**options))  # type: ignore[arg-type]
