"""Group norm that replaces a batch norm."""

from typing import Any

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers.norm import require_usual

GROUP = 8
"""Channels of a group, if the number of channels allows it (TinyTL, section 4.1)."""


def group_size(channels: int) -> int:
    """Largest number up to `GROUP` that divides `channels`.

    >>> group_size(96), group_size(42)
    (8, 7)

    Raises:
        PocketuneError: Only 1 does. On feature maps of one pixel, a norm over single channels
            would give every image the same output.
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

    Every image is normalized by itself, so a batch may hold a single image.

    Kept for the backward pass: 32 bits an element (the input), whether or not weight and bias are
    trained, because an image's own mean and variance change with every element. A
    `FrozenBatchNorm2d` with a frozen weight keeps nothing.

    Args:
        channels: Number of channels.
        eps: Added to the variance.

    Raises:
        PocketuneError: If no number from 2 to 8 divides `channels`.
    """

    def __init__(self, channels: int, eps: float = 1e-3) -> None:
        super().__init__(channels // group_size(channels), channels, eps)

    @classmethod
    def from_batch_norm(cls, norm: nn.BatchNorm2d) -> "GroupNorm":
        """Take over the weight and the bias of a batch norm (the same objects), and its eps.

        Modules inside `norm` (timm's `BatchNormAct2d` has an activation) run after it.

        Raises:
            PocketuneError: If `norm` has no weight and bias, a forward pass of its own, or channels
                that cannot be grouped.
        """
        require_usual(norm)
        if not norm.affine:
            raise PocketuneError(f"{norm} has no weight and bias to take over (affine=False)")
        grouped = cls(norm.num_features, norm.eps)
        grouped.weight, grouped.bias = norm.weight, norm.bias
        for name, module in norm.named_children():
            grouped.add_module(name, module)
        return grouped.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, H, W) -> (N, channels, H, W)."""
        # PyTorch 2.13 crashes in the backward pass of a channels-last group norm whose input needs
        # no gradient
        x = super().forward(x.contiguous())
        for module in self.children():
            x = module(x)
        return x


def make_contiguous(network: nn.Module) -> None:
    """Give trained group norms a contiguous input where it needs no gradient, in place.

    PyTorch 2.13 crashes in the backward pass of such a norm if that input is channels-last.
    """
    for module in network.modules():
        other = isinstance(module, nn.GroupNorm) and not isinstance(module, GroupNorm)
        if other and (_is_trained(module, "bias") or _is_trained(module, "weight")):
            module.register_forward_pre_hook(_contiguous)


def _is_trained(norm: nn.Module, name: str) -> bool:
    parameter = getattr(norm, name)
    return parameter is not None and bool(parameter.requires_grad)


def _contiguous(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        x.contiguous() if isinstance(x, Tensor) and not x.requires_grad else x for x in inputs
    )
