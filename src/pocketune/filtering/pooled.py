"""Maps between two convolutions with filtered gradients, whose gradient stays in patches.

A filtered convolution needs only the sums of its output's gradient over patches. Where the one
behind it has the same patches, the gradient that it hands down is constant in each of them, and
what lies between, a frozen norm and a piecewise linear activation, multiplies each of its elements
by a number: the sum over a patch is then the gradient there times the sum of these numbers, and no
gradient the size of the map is needed at all. `pocketune.surgery.chain_filters` finds such places.
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
    """A map, and what carries its gradient.

    Attributes:
        value: the map (N, C, H, W), without a gradient of its own.
        carrier: (N, C, P, Q) with any values: its gradient has, for each patch, the sum of the
            gradient of the map, as it is before the activation.
        patches: of the map.
        slopes: sum over each patch of the activation's derivative, (N, C, P, Q); None while no
            activation has been passed.
    """

    value: Tensor
    carrier: Tensor
    patches: Patches
    slopes: Tensor | None = None

    def through(self, affine: Callable[[Tensor], Tensor]) -> PooledMap:
        """What a scale and a shift of each channel make of it; the shift may be trained.

        Raises:
            PocketuneError: behind an activation, where the shift's gradient is not the carrier's.
        """
        self._refuse_activated("a norm")
        with torch.no_grad():
            value = affine(self.value)
        return replace(self, value=value, carrier=affine(self.carrier))

    def activated(self, activation: nn.Module) -> PooledMap:
        """What one of `SLOPES` makes of it; slopes are counts, in a byte where one can hold them.

        Raises:
            PocketuneError: behind an activation: the gradient there differs within a patch.
        """
        self._refuse_activated("an activation")
        with torch.no_grad():
            slopes = patch_sum(SLOPES[type(activation)](self.value), self.patches).round()
            if self.patches.size[0] * self.patches.size[1] <= _LARGEST_BYTE:
                slopes = slopes.to(torch.uint8)
            return replace(self, value=activation.forward(self.value), slopes=slopes)

    def __add__(self, other: PooledMap | Tensor) -> PooledMap:
        """The sum of two maps; a tensor must need no gradient.

        Raises:
            PocketuneError: if it does, or patches differ, or behind an activation.
        """
        self._refuse_activated("a sum")
        if isinstance(other, Tensor):
            if other.requires_grad:
                raise PocketuneError("a sum of a pooled map and one with a gradient of its own")
            return replace(self, value=self.value + other)
        other._refuse_activated("a sum")
        if self.patches != other.patches:
            raise PocketuneError(f"a sum of maps with {self.patches} and {other.patches}")
        value, carrier = self.value + other.value, self.carrier + other.carrier
        return PooledMap(value, carrier, self.patches)

    __radd__ = __add__

    def _refuse_activated(self, what: str) -> None:
        if self.slopes is not None:
            raise PocketuneError(f"{what} behind an activation needs the gradient of every element")


register_pytree_node(  # for hooks that look for the tensors in a module's inputs
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
        """(N, features, H, W) -> the same shape, and a `PooledMap` where it is given one.

        Raises:
            PocketuneError: for a `PooledMap`, if `weight` requires a gradient.
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

    Kept for the backward pass, by the convolution behind it: 8 bits for each patch of up to 255
    elements and channel, 32 for larger ones. For tensors what the activation itself keeps.

    Args:
        activation: one of `SLOPES`.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor | PooledMap) -> Tensor | PooledMap:
        """(N, C, H, W) -> the same shape, and a `PooledMap` where it is given one."""
        if isinstance(x, PooledMap):
            return x.activated(self.activation)
        y: Tensor = self.activation.forward(x)  # no call of its own, for what counts calls
        return y


# In PyTorch a comparison takes several times as long as the backward pass of an activation, which
# does the same in float.


@register_operator("slope_between(Tensor x, float low, float high) -> Tensor")
def slope_between(x: Tensor, low: float, high: float) -> Tensor:
    """1 where `low < x < high`, 0 elsewhere, like `x`, which is finite; limits need not be."""
    one = x.new_ones(()).expand_as(x)
    slope: Tensor = torch.ops.aten.hardtanh_backward(one, x, low, high)
    return slope


@register_operator("slope_nonnegative(Tensor x) -> Tensor")
def slope_nonnegative(x: Tensor) -> Tensor:
    """1 where `x >= 0`, 0 elsewhere, like `x`, which is finite."""
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
"""Derivatives of the activations, zeros and ones like their input, from that."""
