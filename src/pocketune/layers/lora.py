"""Trained low-rank updates of frozen layers."""

import math
from typing import Any

from torch import Tensor, nn

from pocketune.layers.conv import Conv2d


class LowRank(nn.Module):
    """The update `up(down(x))` of a linear layer or a 1x1 convolution, of a low rank.

    LoRA: Low-Rank Adaptation of Large Language Models (Hu et al., ICLR 2022, section 4.1). `down`
    is random and `up` starts at 0, so that at first nothing is added. To a 1x1 convolution, a pixel
    is what a token is to a linear layer.

    Kept for the backward pass: 32 bits an element of the layer's input (for the gradient of `down`;
    nothing if `down` is frozen) and of the `rank` channels between (for that of `up`).

    Args:
        layer: A linear layer, or a 1x1 convolution of one group; only its shape is read.
        rank: Channels between `down` and `up`.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.down: nn.Linear | nn.Conv2d
        self.up: nn.Linear | nn.Conv2d
        if isinstance(layer, nn.Linear):
            self.down = nn.Linear(layer.in_features, rank, bias=False)
            self.up = nn.Linear(rank, layer.out_features, bias=False)
        else:
            place: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding}
            self.down = Conv2d(layer.in_channels, rank, 1, bias=False, **place)
            self.up = Conv2d(rank, layer.out_channels, 1, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """What is added to the layer's output for its input `x`."""
        added: Tensor = self.up(self.down(x))
        return added


def product(down: Tensor, up: Tensor) -> Tensor:
    """The kernel (out, in) or (out, in, 1, 1) of `up(down(x))`, from those of both layers."""
    return (up.flatten(1) @ down.flatten(1)).reshape(len(up), *down.shape[1:])
