"""The frame that all networks here but the ResNets share."""

from torch import Tensor, nn

from pocketune.networks.init import initialize


class PlainNetwork(nn.Module):
    """`features` (stem, blocks, head) in a row, global average pooling, `classifier`."""

    def __init__(self, features: list[nn.Module], classifier: nn.Sequential) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = classifier
        initialize(self)

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits
