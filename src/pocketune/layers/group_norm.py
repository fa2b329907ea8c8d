"""Group norm in a batch norm's place."""

from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError

GROUP = 8
"""Channels of a group, where the number of channels allows (TinyTL, section 4.1)."""


def group_size(channels: int) -> int:
    """Largest number up to `GROUP` that divides `channels`.

    >>> group_size(96), group_size(42)
    (8, 7)

    Raises:
        PocketuneError: if only 1 does. A norm over single channels would make the same map of
            every image where a map has one pixel.
    """
    size = next(size for size in range(min(GROUP, channels), 0, -1) if channels % size == 0)
    if size == 1:
        raise PocketuneError(
            f"{channels} channels cannot be divided into groups of 2 to {GROUP}; use "
            "norm='batch' and no lite residual modules (lite_residual=False, patches='none')"
        )
    return size


class GroupNorm(nn.GroupNorm):
    """Group norm over groups of at most 8 channels (Wu and He, 2018; TinyTL, section 4.1).

    Every image is normalized by itself, so that a batch may hold one.

    Kept for the backward pass: 32 bits an element (the input), whether or not scale and shift are
    trained: an image's own mean and variance change with every element. A `FrozenBatchNorm2d` of
    frozen scale keeps nothing.

    Args:
        channels: of the input.
        eps: added to the variance.

    Raises:
        PocketuneError: if no number from 2 to 8 divides `channels`.
    """

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__(channels // group_size(channels), channels, eps)

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm2d) -> "GroupNorm":
        """Take over the scale and the shift of a batch norm (the same objects), and its eps.

        Modules inside `norm` (timm's `BatchNormAct2d` has an activation) run after it.

        Raises:
            PocketuneError: if `norm` has no scale and shift, or no groups of channels.
        """
        if not norm.affine:
            raise PocketuneError(f"{norm} has no scale and shift to take over (affine=False)")
        grouped = cls(norm.num_features, norm.eps)
        grouped.weight, grouped.bias = norm.weight, norm.bias
        for name, module in norm.named_children():
            grouped.add_module(name, module)
        return grouped.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, channels, H, W)."""
        # PyTorch 2.13 ends the process on the way back through a channels-last group norm of which
        # the shift alone is trained
        x = super().forward(x.contiguous())
        for module in self.children():
            x = module(x)
        return x


def make_contiguous(network: nn.Module) -> None:
    """Let group norms that train their shift alone take a contiguous map, in place.

    PyTorch 2.13 ends the process on the way back through one of a channels-last map that needs no
    gradient itself.
    """
    for module in network.modules():
        if isinstance(module, nn.GroupNorm) and not isinstance(module, GroupNorm):
            weight, bias = module.weight, module.bias
            if module.affine and bias.requires_grad and not weight.requires_grad:
                module.register_forward_pre_hook(_contiguous)


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.contiguous() if isinstance(x, Tensor) else x for x in inputs)
