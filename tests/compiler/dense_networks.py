"""A segmentation network small enough to trace in a moment, with everything that real ones have."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.networks.architectures.parts import ConvNormActivation
from pocketune.tasks import Segmentation, numbered

from .networks import Block, with_norms

BATCH, SIZE, CLASSES = 2, 40, 3
TASK = Segmentation(numbered(CLASSES))


class DenseNetwork(nn.Module):
    """Dilated blocks, a pyramid of pooled maps, dilated convolutions side by side, a classifier."""

    def __init__(self, *, channels: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.stem = ConvNormActivation(3, channels, 3, stride=2)
        self.down = ConvNormActivation(channels, channels, 3, stride=2)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(2)))
        depthwise = self.blocks[1].depthwise[0]
        depthwise.dilation = depthwise.padding = (2, 2)
        self.pool = nn.ModuleList(ConvNormActivation(channels, 3) for _ in range(3))
        self.near = ConvNormActivation(channels, 5)
        self.far = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, 5, 3, padding=d, dilation=d, bias=False),
                nn.BatchNorm2d(5),
                nn.ReLU(),
            )
            for d in (3, 12)
        )
        self.join = ConvNormActivation(3 * 3 + 3 * 5, 8, 3)
        self.dropout = nn.Dropout2d(dropout)
        self.classifier = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, CLASSES, H / 4, W / 4)."""
        x = self.blocks(self.down(self.stem(x)))
        size = x.shape[2:]
        pooled = [
            F.interpolate(
                conv(F.adaptive_avg_pool2d(x, n)), size, mode="bilinear", align_corners=False
            )
            for n, conv in zip((2, 3, 6), self.pool, strict=True)
        ]
        x = torch.cat([*pooled, self.near(x), *(conv(x) for conv in self.far)], 1)
        logits: Tensor = self.classifier(self.dropout(self.join(x)))
        return logits


def dense(seed: int = 0, **options: float) -> DenseNetwork:
    """A network whose norms have something to do."""
    torch.manual_seed(seed)
    return with_norms(DenseNetwork(**options))  # type: ignore[arg-type]
