"""Small trained branches parallel to frozen blocks: those of TinyTL and of Rep-Net."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers.group_norm import GroupNorm
from pocketune.layers.weight_standardization import StandardizedConv2d

TABLE_SIDE = 128
"""Side of the maps at the first block in TinyTL's table of map sizes, for images of any side."""

EPS = 1e-3
"""Added to the variance in the batch norms of Rep-Net's modules."""


class SideBranch(nn.Module):
    """Average pooling, convolution, norm, ReLU, 1x1 convolution, norm, bilinear resizing.

    The kernels are standardized. The weight of the last norm starts at 0, so the branch adds
    nothing at first.

    Kept for the backward pass, in elements of the pooled input p, the middle m and the output o
    before resizing: 32 bits for each of p (input of `conv1`), m (input of `norm1`), m again (input
    of `conv2`, which also gives the mask of ReLU; a `MaskedReLU` instead keeps 1 bit more) and o
    (input of `norm2`). Pooling and resizing keep nothing.

    Args:
        conv1: The first convolution.
        norm1: The norm after it.
        conv2: The 1x1 convolution.
        norm2: The norm after it.
        stride: How many times smaller the block's output is than the branch's input.
        window: Side of the squares of pixels that are averaged.
    """

    LAST_BIAS = "norm2.bias"
    """Name of the bias that is added to the same sum as the last bias of the block."""
    resizes = True

    def __init__(
        self,
        conv1: StandardizedConv2d,
        norm1: nn.BatchNorm2d | GroupNorm,
        conv2: StandardizedConv2d,
        norm2: nn.BatchNorm2d | GroupNorm,
        *,
        stride: int,
        window: int = 2,
    ) -> None:
        super().__init__()
        self.stride = stride
        self.window = window
        self.conv1 = conv1
        self.norm1 = norm1
        self.activation = nn.ReLU()
        self.conv2 = conv2
        self.norm2 = norm2
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Kernels are normal with variance 2 / (k^2 out); norms the identity, the last weight 0."""
        for conv in (self.conv1, self.conv2):
            fan_out = math.prod(conv.kernel_size) * conv.out_channels
            if not conv.weight.is_meta:  # PyTorch would import its compiler to draw nothing
                nn.init.normal_(conv.weight, std=math.sqrt(2 / fan_out))
        self.norm1.reset_parameters()
        self.norm2.reset_parameters()
        nn.init.zeros_(self.norm2.weight)

    def forward(self, x: Tensor, size: Sequence[int] | None = None) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, *size).

        `size` is by default H and W divided by `stride`, rounded up.

        A side smaller than the pooling window is averaged as a whole.
        """
        size = [-(-side // self.stride) for side in x.shape[2:]] if size is None else list(size)
        # in a trace, sides are tensors and pooling takes numbers
        y: Tensor = F.avg_pool2d(x, [int(min(side, self.window)) for side in x.shape[2:]])
        y = self.activation(self.norm1(self.conv1(y)))
        y = self.norm2(self.conv2(y))
        return y if list(y.shape[2:]) == size else F.interpolate(y, size, mode="bilinear")


class LiteResidual(SideBranch):
    """The lite residual module of TinyTL, on a quarter of its block's pixels.

    Its first convolution is grouped and has the block's stride (Cai et al., TinyTL, NeurIPS 2020,
    section 3.2). Its norms are group norms, so that a batch may hold one image.

    Kept for the backward pass: what a `SideBranch` keeps, on a quarter of the block's pixels.

    Args:
        inputs: Channels of the block's input; the middle has as many, rounded up to a multiple of
            8.
        outputs: Channels of the block's output.
        kernel: Side of the first convolution, odd.
        stride: Stride of the block's convolutions.
        groups: Groups of the first convolution.

    Raises:
        PocketuneError: If `groups` does not divide `inputs`, or channels cannot be divided into
            the groups of a norm.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int = 5,
        stride: int = 1,
        groups: int = 2,
    ) -> None:
        middle = math.ceil(inputs / 8) * 8
        if inputs % groups or middle % groups:
            raise PocketuneError(
                f"groups={groups} does not divide the channels of a lite residual module, "
                f"{inputs} -> {middle}; use groups=1"
            )
        options: dict[str, Any] = {"stride": stride, "padding": kernel // 2, "groups": groups}
        super().__init__(
            StandardizedConv2d(inputs, middle, kernel, bias=False, **options),
            GroupNorm(middle),
            StandardizedConv2d(middle, outputs, 1, bias=False),
            GroupNorm(outputs),
            stride=stride,
        )

    @staticmethod
    def fitting_kernel(kernel: int, side: int) -> int:
        """`kernel`, shrunk until it fits the pooled map of a block whose input has `side` pixels.

        As in TinyTL's code, which has a table of the map sizes of ProxylessNAS-Mobile.
        """
        while kernel > max(side // 2, 1):
            kernel -= 2
        return kernel

    def arguments(self) -> dict[str, int]:
        """The arguments of the module: `LiteResidual(**module.arguments())` has the same shapes."""
        return {
            "inputs": self.conv1.in_channels,
            "outputs": self.conv2.out_channels,
            "kernel": self.conv1.kernel_size[0],
            "stride": self.stride,
            "groups": self.conv1.groups,
        }


class ProgramModule(SideBranch):
    """The side module of Rep-Net, on a quarter of its block's pixels or fewer.

    Its first convolution has stride 1 and two groups, or one if two do not divide the channels or
    if the module reads the image (Yang et al., Rep-Net: Efficient On-Device Learning via Feature
    Reprogramming, CVPR 2022, section 3.2; the sizes are those of its public code). Its norms are
    batch norms.

    Kept for the backward pass: what a `SideBranch` keeps.

    Args:
        inputs: Channels of its input.
        middle: Channels between its convolutions.
        outputs: Channels of the block's output.
        kernel: Side of the first convolution, odd.
        stride: How many times smaller the block's output is than the module's input.
        reads_image: Whether its input is the network's image instead of the block's input; the
            image is pooled to half the side of the block's output.
    """

    def __init__(
        self,
        inputs: int,
        middle: int,
        outputs: int,
        *,
        kernel: int = 5,
        stride: int = 1,
        reads_image: bool = False,
    ) -> None:
        groups = 1 if reads_image or inputs % 2 or middle % 2 else 2
        options: dict[str, Any] = {"padding": kernel // 2, "groups": groups}
        super().__init__(
            StandardizedConv2d(inputs, middle, kernel, bias=False, **options),
            nn.BatchNorm2d(middle, eps=EPS),
            StandardizedConv2d(middle, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs, eps=EPS),
            stride=stride,
            window=2 * stride if reads_image else 2,
        )
        self.reads_image = reads_image
