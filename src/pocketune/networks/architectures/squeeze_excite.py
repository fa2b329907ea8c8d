"""Squeeze and excitation (Hu et al., 2018), with torchvision's names."""

from torch import Tensor, nn


class SqueezeExcite(nn.Module):
    """Scales each channel by a number in [0, 1] computed from the means of all channels.

    `fc1` and `fc2` are 1x1 convolutions with bias, `activation` a ReLU between them and
    `scale_activation` a hard sigmoid after them, as MobileNetV3 has it.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.scale_activation = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        scale: Tensor = self.activation(self.fc1(x.mean((2, 3), keepdim=True)))
        scale = self.scale_activation(self.fc2(scale))
        return x * scale
