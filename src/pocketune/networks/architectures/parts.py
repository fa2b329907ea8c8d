"""What every network here is made of: convolution, norm, activation, blocks and the frame."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from pocketune.layers.conv import Conv2d

Norm = Callable[[int], nn.Module]
Activation = Callable[[], nn.Module]


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
    padding: str = "symmetric",
) -> nn.Conv2d:
    """Convolution without bias that keeps the size (up to its stride), for an odd kernel."""
    same = padding == "same" and stride > 1  # at stride 1 both rules pad all sides alike
    return Conv2d(
        inputs,
        outputs,
        kernel,
        stride=stride,
        padding=0 if same else dilation * (kernel // 2),
        dilation=dilation,
        groups=groups,
        bias=False,
        same_padding=same,
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
        dilation: int = 1,
        padding: str = "symmetric",
        norm: Norm = nn.BatchNorm2d,
        activation: Activation | None = nn.ReLU6,
    ) -> None:
        conv = convolution(
            inputs,
            outputs,
            kernel,
            stride=stride,
            groups=groups,
            dilation=dilation,
            padding=padding,
        )
        layers: list[nn.Module] = [conv, norm(outputs)]
        if activation is not None:
            layers.append(activation())
        super().__init__(*layers)


def blocks_at(depth: float, blocks: int) -> int:
    """Blocks of a stage that has `blocks` at depth 1; EfficientNet's rule rounds up."""
    return math.ceil(round(depth * blocks, 6))


def make_divisible(channels: float) -> int:
    """Nearest multiple of 8, and never more than 10 % below `channels`.

    The rule of TensorFlow's slim networks, which MobileNetV2 and V3 are defined with.
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


class InvertedResidual(nn.Module):
    """1x1 expansion (left out where it would not widen), depthwise k x k, 1x1 projection.

    `conv` holds them in order, as in torchvision's MobileNetV2: ConvNormActivation modules,
    then the projection and its norm bare. The input is added where its shape fits the output,
    unless `residual` is False.
    """

    def __init__(
        self,
        inputs: int,
        middle: int,
        outputs: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        dilation: int = 1,
        residual: bool = True,
        padding: str = "symmetric",
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=eps)
        depthwise = ConvNormActivation(
            middle,
            middle,
            kernel,
            stride=stride,
            groups=middle,
            dilation=dilation,
            padding=padding,
            norm=norm,
        )
        expand = [] if middle == inputs else [ConvNormActivation(inputs, middle, norm=norm)]
        self.conv = nn.Sequential(*expand, depthwise, convolution(middle, outputs), norm(outputs))
        self.use_res_connect = residual and stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        y: Tensor = self.conv(x)
        return x + y if self.use_res_connect else y


class SqueezeExcite(nn.Module):
    """Scales each channel by a number in [0, 1] computed from the means of all channels.

    `fc1` and `fc2` are 1x1 convolutions with bias, `activation` is between them and
    `scale_activation` after them: ReLU and hard sigmoid in MobileNetV3.
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        *,
        activation: Activation = nn.ReLU,
        gate: Activation = nn.Hardsigmoid,
    ) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()
        self.scale_activation = gate()

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> the same shape."""
        scale: Tensor = self.activation(self.fc1(x.mean((2, 3), keepdim=True)))
        scale = self.scale_activation(self.fc2(scale))
        return x * scale


class OutputStride:
    """Strides up to a limit, and dilations instead of strides from there on.

    Attributes:
        reached: The stride of the whole network after the stem and after each call, as if it were
            not dilated.

    Args:
        limit: Side of the image over the side of the last map; None for no limit.
        stem: Side of the image over the side of the map of the stem, which is not dilated.
    """

    def __init__(self, limit: int | None, stem: int = 2) -> None:
        self.limit = limit
        self.reached = [stem]

    def __call__(self, stride: int) -> tuple[int, int]:
        """The stride and the dilation of the next layer, which has `stride` without a limit."""
        before = self.reached[-1]
        self.reached.append(before * stride)
        limit = self.limit or before * stride
        return min(before * stride, limit) // min(before, limit), max(before * stride // limit, 1)


class Stage(NamedTuple):
    """A part of a network that can be a backbone.

    Attributes:
        name: Its name in the backbone.
        module: Takes the previous part's feature map (N, C, H, W).
        stride: Side of the image over the side of its output, if the network is not dilated.
    """

    name: str
    module: nn.Module
    stride: int


class PlainNetwork(nn.Module):
    """`features` (stem, blocks, feature fusion) in a row, global average pooling, `classifier`.

    Args:
        features: The modules in a row.
        classifier: Takes the pooled features (N, C).
        reached: `OutputStride.reached`, for stem and blocks.
    """

    def __init__(
        self, features: list[nn.Module], classifier: nn.Sequential, reached: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = classifier
        self.reached = tuple(reached)
        initialize(self)

    def stages(self, *, feature_fusion: bool) -> list[Stage]:
        """Stem and blocks, and the feature-fusion layer on request if there is one."""
        stages = [
            Stage(str(place), self.features[place], stride)
            for place, stride in enumerate(self.reached)
        ]
        if feature_fusion and len(self.features) > len(stages):
            stages.append(Stage(str(len(stages)), self.features[-1], self.reached[-1]))
        return stages

    def forward(self, x: Tensor) -> Tensor:
        """Normalized images (N, 3, H, W) -> logits (N, classes)."""
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def initialize(network: nn.Module) -> None:
    """He initialization (fan out) of convolutions, identity norms, `initialize_linear`.

    Parameters without values are left alone: PyTorch would import its compiler to draw nothing.
    """
    if any(parameter.is_meta for parameter in network.parameters()):
        return
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            initialize_linear(module)


def initialize_linear(layer: nn.Linear) -> None:
    """Weights uniform in +-1 / sqrt(fan in), bias 0: how every new classifier starts."""
    bound = 1 / math.sqrt(layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
