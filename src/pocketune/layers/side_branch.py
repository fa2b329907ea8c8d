"""Small trained branches beside frozen blocks: TinyTL's and Rep-Net's."""

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from pocketune.errors import PocketuneError
from pocketune.layers.group_norm import GroupNorm
from pocketune.layers.weight_standardization import StandardizedConv2d


class LiteResidual(nn.Module):
    """A small trained branch beside a frozen block, on a quarter of its pixels.

    2x2 average pooling, a grouped k x k convolution, norm, ReLU, a 1x1 convolution, norm, and
    bilinear upsampling to the size of the block's output (Cai et al., TinyTL, NeurIPS 2020,
    section 3.2). Norms are group norms and filters are standardized, so that a batch may hold
    one image. The last norm's scale starts at 0: at first the branch changes nothing.

    Kept for the backward pass, in elements of the pooled input p, the middle m and the output o
    (a quarter of the block's pixels each): 32 bits for each of p (input of `conv1`) and m (input
    of `norm1`), 32 for m again (input of `conv2`) with 1 for its sign, and 32 for o (input of
    `norm2`). Pooling and upsampling keep nothing.

    Args:
        inputs: channels of the block's input; the middle has as many, to the next multiple of 8.
        outputs: channels of the block's output.
        kernel: side of the first convolution, odd.
        stride: of the block's convolutions.
        groups: of the first convolution.

    Raises:
        PocketuneError: if `groups` does not divide `inputs`, or the norms find no groups.
    """

    PARAMETERS = (
        "conv1.weight",
        "norm1.weight",
        "norm1.bias",
        "conv2.weight",
        "norm2.weight",
        "norm2.bias",
    )
    LAST_SHIFT = "norm2.bias"
    """Does what the last shift of the block beside it does."""
    resizes = True

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        kernel: int = 5,
        stride: int = 1,
        groups: int = 2,
    ) -> None:
        super().__init__()
        middle = math.ceil(inputs / 8) * 8
        if inputs % groups or middle % groups:
            raise PocketuneError(
                f"groups={groups} does not divide the channels of a lite residual module, "
                f"{inputs} -> {middle}; use groups=1"
            )
        self.stride = stride
        self.conv1 = StandardizedConv2d(
            inputs,
            middle,
            kernel,
            stride=stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        )
        self.norm1 = GroupNorm(middle)
        self.activation = nn.ReLU()
        self.conv2 = StandardizedConv2d(middle, outputs, 1, bias=False)
        self.norm2 = GroupNorm(outputs)
        self.reset_parameters()

    def arguments(self) -> dict[str, int]:
        """What it was made with: `LiteResidual(**module.arguments())` has the same shapes."""
        return {
            "inputs": self.conv1.in_channels,
            "outputs": self.conv2.out_channels,
            "kernel": self.conv1.kernel_size[0],
            "stride": self.stride,
            "groups": self.conv1.groups,
        }

    def reset_parameters(self) -> None:
        """Convolutions normal with variance 2 / (k^2 out); norms the identity, the last scale 0."""
        for conv in (self.conv1, self.conv2):
            fan_out = conv.kernel_size[0] * conv.kernel_size[1] * conv.out_channels
            nn.init.normal_(conv.weight, std=math.sqrt(2 / fan_out))
        self.norm1.reset_parameters()
        self.norm2.reset_parameters()
        nn.init.zeros_(self.norm2.weight)

    def forward(self, x: Tensor, size: Sequence[int] | None = None) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, *size), H and W by `stride` where no size is given."""
        size = [-(-side // self.stride) for side in x.shape[2:]] if size is None else list(size)
        y = self.norm1(self.conv1(_pool(x)))
        y = self.norm2(self.conv2(self.activation(y)))
        return y if list(y.shape[2:]) == size else F.interpolate(y, size, mode="bilinear")


def _pool(x: Tensor) -> Tensor:
    """Means of 2x2 pixels; a side of one pixel stays."""
    # in a trace sides are tensors, which no pooling takes
    return F.avg_pool2d(x, [int(min(side, 2)) for side in x.shape[2:]])


EPS = 1e-3


class ProgramModule(nn.Module):
    """A small trained module beside a frozen block, on a quarter of its pixels or fewer.

    Average pooling, a k x k convolution in two groups (one, where they do not divide the channels
    and where the image is read), batch norm, ReLU, a 1x1 convolution, batch
    norm, and bilinear resizing to the size of the block's output (Yang et al., Rep-Net: Efficient
    On-Device Learning via Feature Reprogramming, CVPR 2022, section 3.2; the sizes are those of
    its public code). The convolutions' filters are standardized. The last norm's scale starts at
    0: at first the module changes nothing.

    Kept for the backward pass, in elements of the pooled input p, the middle m and the pooled
    output o: 32 bits for each of p (input of `conv1`) and m (input of `norm1`), 32 for m again
    (input of `conv2`, from which ReLU takes its mask too) and 32 for o (input of `norm2`).
    Pooling and resizing keep nothing.

    Args:
        inputs: channels of what it reads.
        middle: channels between its convolutions.
        outputs: channels of the block's output.
        kernel: side of the first convolution, odd.
        stride: how many times smaller the block's output is than what the module reads.
        reads_image: it reads the image that the network is given and not the block's input, and
            pools it to half the side of the block's output.
    """

    PARAMETERS = (
        "conv1.weight",
        "norm1.weight",
        "norm1.bias",
        "conv2.weight",
        "norm2.weight",
        "norm2.bias",
    )
    NORMS = ("norm1", "norm2")
    resizes = True

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
        super().__init__()
        self.reads_image = reads_image
        self.stride = stride
        self.window = 2 * stride if reads_image else 2
        self.conv1 = StandardizedConv2d(
            inputs,
            middle,
            kernel,
            padding=kernel // 2,
            groups=1 if reads_image or inputs % 2 or middle % 2 else 2,
            bias=False,
        )
        self.norm1 = nn.BatchNorm2d(middle, eps=EPS)
        self.activation = nn.ReLU()
        self.conv2 = StandardizedConv2d(middle, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, eps=EPS)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Convolutions normal with variance 2 / (k^2 out); norms the identity, the last scale 0."""
        for conv in (self.conv1, self.conv2):
            nn.init.normal_(conv.weight, std=_deviation(conv))
        self.norm1.reset_parameters()
        self.norm2.reset_parameters()
        nn.init.zeros_(self.norm2.weight)

    def forward(self, x: Tensor, size: Sequence[int] | None = None) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, *size), H and W by `stride` where no size is given."""
        size = [-(-side // self.stride) for side in x.shape[2:]] if size is None else list(size)
        # in a trace sides are tensors, which no pooling takes
        y: Tensor = F.avg_pool2d(x, [int(min(side, self.window)) for side in x.shape[2:]])
        y = self.activation(self.norm1(self.conv1(y)))
        y = self.norm2(self.conv2(y))
        return y if list(y.shape[2:]) == size else F.interpolate(y, size, mode="bilinear")


def _deviation(conv: nn.Conv2d) -> float:
    return math.sqrt(2 / (math.prod(conv.kernel_size) * conv.out_channels))
