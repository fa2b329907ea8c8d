"""Convolution, norm and activation: what every network here is made of."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

Norm = Callable[[int], nn.Module]
Activation = Callable[[], nn.Module]


class SameConv2d(nn.Conv2d):
    """Strided convolution with TensorFlow's "SAME" padding.

    The output has `ceil(size / stride)` rows and columns. The zeros that takes are shared
    between both sides, the odd one going right and bottom, so their number depends on the size
    of the input and `self.padding` stays 0. Parameters are named as in `nn.Conv2d`.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, out_channels, ceil(H / stride), ceil(W / stride))."""
        top, bottom = self._pad(x.shape[2], 0)
        left, right = self._pad(x.shape[3], 1)
        return super().forward(F.pad(x, (left, right, top, bottom), value=self.padding_value(x)))

    def padding_value(self, x: Tensor) -> float:  # noqa: ARG002 (for overriding)
        """What is padded with: zero, as `x` writes it."""
        return 0.0

    def _pad(self, size: int, axis: int) -> tuple[int, int]:
        stride, extent = self.stride[axis], self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        return total // 2, total - total // 2


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    padding: str = "symmetric",
) -> nn.Conv2d:
    """Convolution without bias that keeps the size (up to its stride), for an odd kernel."""
    if padding == "same" and stride > 1:  # at stride 1 both rules put k // 2 on every side
        return SameConv2d(inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
    return nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False
    )


class ConvNormActivation(nn.Sequential):
    """Convolution `0`, norm `1` and activation `2`: torchvision's Conv2dNormActivation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        padding: str = "symmetric",
        norm: Norm = nn.BatchNorm2d,
        activation: Activation | None = nn.ReLU6,
    ) -> None:
        layers: list[nn.Module] = [
            convolution(inputs, outputs, kernel, stride=stride, groups=groups, padding=padding),
            norm(outputs),
        ]
        if activation is not None:
            layers.append(activation())
        super().__init__(*layers)


def make_divisible(channels: float) -> int:
    """Nearest multiple of 8, and never more than 10 % below `channels`.

    The rule of TensorFlow's slim networks, which MobileNetV2 and V3 are defined with.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8
