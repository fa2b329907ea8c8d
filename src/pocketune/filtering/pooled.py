"""Feature maps between two filtered convolutions, whose gradient stays in patches.

A filtered convolution needs only the sums of its output's gradient over patches. If the next one
has the same patches, the gradient of its input is constant in each of them. A frozen norm and a
piecewise linear activation between the two multiply each element of the gradient by a number. The
sum over a patch is then the gradient there times the sum of these numbers, and a gradient the size
of the feature map is never needed. `pocketune.surgery.chain_filters` finds such places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.filtering.patches import Patches, patch_sum
from pocketune.layers.activation import (
    MaskedReLU,
    MaskedReLU6,
    SignedHardswish,
    SignedReLU,
    SignedReLU6,
)
from pocketune.layers.autograd import register_operator
from pocketune.layers.norm import FrozenBatchNorm2d
from pocketune.torch_private import register_pytree_node

_LARGEST_BYTE = 255


@dataclass(frozen=True)
class PooledMap:
    """A feature map and the tensor that carries its gradient.

    Attributes:
        value: The feature map (N, C, H, W), without a gradient of its own.
        carrier: (N, C, P, Q) with any values. Its gradient holds, for each patch, the sum of the
            feature map's gradient, before the activation.
        patches: Of the feature map.
        slopes: Sum over each patch of the activation's derivative, (N, C, P, Q); None before an
            activation.
    """

    value: Tensor
    carrier: Tensor
    patches: Patches
    slopes: Tensor | None = None

    def through(self, affine: Callable[[Tensor], Tensor]) -> PooledMap:
        """Apply a scale and a shift of each channel; the shift may be trained.

        Raises:
            PocketuneError: After an activation, where the shift needs another gradient.
        """
        self._refuse_activated("a norm")
        with torch.no_grad():
            value = affine(self.value)
        return replace(self, value=value, carrier=affine(self.carrier))

    def activated(self, activation: nn.Module) -> PooledMap:
        """Apply one of `SLOPES`; the slopes are counts, stored in a byte where that is enough.

        Raises:
            PocketuneError: After an activation, where the gradient differs within a patch.
        """
        self._refuse_activated("an activation")
        with torch.no_grad():
            slopes = patch_sum(SLOPES[type(activation)](self.value), self.patches).round()
            if self.patches.size[0] * self.patches.size[1] <= _LARGEST_BYTE:
                slopes = slopes.to(torch.uint8)
            return replace(self, value=activation.forward(self.value), slopes=slopes)

    def __add__(self, other: PooledMap | Tensor) -> PooledMap:
        """Add a pooled map with the same patches, or a tensor that requires no gradient.

        Raises:
            PocketuneError: If the patches differ, the tensor requires a gradient, or either pooled
                map follows an activation.
        """
        self._refuse_activated("a sum")
        if isinstance(other, Tensor):
            if other.requires_grad and not other.is_meta:  # a run of shapes may record all maps
                raise PocketuneError(
                    "a pooled map cannot be added to a tensor that requires a gradient; set "
                    "passes_pooled=False on the layers of filter_chains"
                )
            return replace(self, value=self.value + other)
        other._refuse_activated("a sum")
        if self.patches != other.patches:
            raise PocketuneError(
                f"pooled maps of different patches cannot be added: {self.patches} and "
                f"{other.patches}"
            )
        value, carrier = self.value + other.value, self.carrier + other.carrier
        return PooledMap(value, carrier, self.patches)

    __radd__ = __add__

    def _refuse_activated(self, what: str) -> None:
        if self.slopes is not None:
            raise PocketuneError(
                f"{what} after an activation needs the gradient of every element, and a pooled "
                "map has only that of patches"
            )


register_pytree_node(  # so that hooks find the tensors in a module's inputs
    PooledMap,
    lambda pooled: ([pooled.value, pooled.carrier], (pooled.patches, pooled.slopes)),
    lambda tensors, context: PooledMap(*tensors, *context),
)


class PooledBatchNorm2d(FrozenBatchNorm2d):
    """A `FrozenBatchNorm2d` that takes a `PooledMap` as well as a tensor.

    Kept for the backward pass: 0 bits an element of a pooled map; for tensors what a
    `FrozenBatchNorm2d` keeps.
    """

    def forward(self, x: Tensor | PooledMap) -> Tensor | PooledMap:  # type: ignore[override]
        """(N, features, H, W) -> the same shape; a `PooledMap` -> a `PooledMap`.

        Raises:
            PocketuneError: For a `PooledMap`, if `weight` requires a gradient.
        """
        if isinstance(x, Tensor):
            return super().forward(x)
        if self.weight.requires_grad:
            raise PocketuneError(
                f"the weight of {self} requires a gradient, and the convolution before it passes "
                "on the gradient of patches only: adapt the network by a method that trains it, "
                "or set passes_pooled=False on the layers of filter_chains"
            )
        x = x.through(self.normalize)
        for module in self.children():
            x = module(x)
        return x


class PooledActivation(nn.Module):
    """An activation that takes a `PooledMap` as well as a tensor.

    Kept for the backward pass, by the next convolution: 8 bits for each channel and patch of up
    to 255 elements, 32 for larger patches. For tensors, what the activation itself keeps.

    Args:
        activation: One of `SLOPES`.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor | PooledMap) -> Tensor | PooledMap:
        """(N, C, H, W) -> the same shape; a `PooledMap` -> a `PooledMap`."""
        if isinstance(x, PooledMap):
            return x.activated(self.activation)
        y: Tensor = self.activation.forward(x)  # not called, so that hooks count one call
        return y


# In PyTorch, a comparison takes several times as long as the backward pass of an activation, which
# computes the same in float.


@register_operator("slope_between(Tensor x, float low, float high) -> Tensor")
def slope_between(x: Tensor, low: float, high: float) -> Tensor:
    """1 where `low < x < high` and 0 elsewhere, like `x`; x is finite, the limits need not be."""
    one = x.new_ones(()).expand_as(x)
    slope: Tensor = torch.ops.aten.hardtanh_backward(one, x, low, high)
    return slope


@register_operator("slope_nonnegative(Tensor x) -> Tensor")
def slope_nonnegative(x: Tensor) -> Tensor:
    """1 where `x >= 0` and 0 elsewhere, like `x`, which is finite."""
    one = x.new_ones(()).expand_as(x)
    negative: Tensor = torch.ops.aten.hardtanh_backward(one, x, -torch.inf, 0.0)
    return negative.neg_().add_(1)


def _between_zero_and_six(x: Tensor) -> Tensor:
    return slope_between(x, 0.0, 6.0)


def _positive(x: Tensor) -> Tensor:
    return slope_between(x, 0.0, torch.inf)


SLOPES: dict[type[nn.Module], Callable[[Tensor], Tensor]] = {
    nn.ReLU: _positive,
    MaskedReLU: _positive,
    nn.ReLU6: _between_zero_and_six,
    MaskedReLU6: _between_zero_and_six,
    SignedReLU: slope_nonnegative,
    SignedReLU6: slope_nonnegative,
    SignedHardswish: slope_nonnegative,
}
"""The derivative of each activation, zeros and ones, as a function of its input."""
