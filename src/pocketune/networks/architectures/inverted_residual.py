"""The inverted residual block of MobileNetV2, ProxylessNAS and MCUNet."""

from functools import partial

from torch import Tensor, nn

from pocketune.networks.architectures.conv import ConvNormActivation, convolution


class InvertedResidual(nn.Module):
    """1x1 expansion (left out where it would not widen), depthwise k x k, 1x1 projection.

    `conv` holds them in order, as in torchvision's MobileNetV2: ConvNormActivation modules,
    then the projection and its norm bare. The input is added where its shape fits the output.
    """

    def __init__(
        self,
        inputs: int,
        middle: int,
        outputs: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        padding: str = "symmetric",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=eps)
        depthwise = ConvNormActivation(
            middle, middle, kernel, stride=stride, groups=middle, padding=padding, norm=norm
        )
        expand = [] if middle == inputs else [ConvNormActivation(inputs, middle, norm=norm)]
        self.conv = nn.Sequential(*expand, depthwise, convolution(middle, outputs), norm(outputs))
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.conv(x)
        return x + y if self.use_res_connect else y
