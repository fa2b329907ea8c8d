"""What several of timm's networks share, under its names."""

from torch import Tensor, nn

from pocketune.networks.architectures.parts import Activation, convolution


class ConvNorm(nn.Module):
    """Convolution `conv`, norm `bn` and, if there is one, an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: str = "symmetric",
        activation: Activation = nn.Identity,
    ) -> None:
        super().__init__()
        self.conv = convolution(
            inputs, outputs, kernel, stride=stride, groups=groups, padding=padding
        )
        self.bn = nn.BatchNorm2d(outputs)
        self.act = activation()

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.act(self.bn(self.conv(x)))
        return y


class PooledLinear(nn.Module):
    """Global average pooling and the linear layer `fc`."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, classes)."""
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits
