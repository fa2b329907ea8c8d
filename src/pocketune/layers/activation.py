"""Activations that keep one bit an element for the backward pass.

`Masked...` are exact. `Signed...` have the approximate backward pass of MobileTL (Chiang et al.,
AAAI 2023): the gradient passes where the input is not negative. H-swish then keeps one bit an
element instead of its whole input, and ReLU6 needs one comparison instead of two.
"""

from collections.abc import Callable
from math import inf

from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.bits import mask_gradient, pack_between, pack_nonnegative
from pocketune.layers.few_bit import FewBitHardswish
from pocketune.layers.packed_derivative import Derivative, with_derivative


class SignedReLU(nn.Module):
    """`max(x, 0)`; the gradient passes where `x >= 0`, also at zero itself.

    Kept for the backward pass: 1 bit an element.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _signed(x, functional.relu)


class SignedReLU6(nn.Module):
    """`min(max(x, 0), 6)`; the gradient passes where `x >= 0`, also at zero and above six.

    Kept for the backward pass: 1 bit an element.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _signed(x, functional.relu6)


class SignedHardswish(nn.Module):
    """`x * relu6(x + 3) / 6`; the gradient passes where `x >= 0`.

    Kept for the backward pass: 1 bit an element.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _signed(x, functional.hardswish)


class MaskedReLU(nn.Module):
    """`max(x, 0)` with its exact gradient, as `nn.ReLU`.

    Kept for the backward pass: 1 bit an element; `nn.ReLU` keeps its output.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _masked(x, functional.relu, inf)


class MaskedReLU6(nn.Module):
    """`min(max(x, 0), 6)` with its exact gradient, as `nn.ReLU6`.

    Kept for the backward pass: 1 bit an element; `nn.ReLU6` keeps its input.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _masked(x, functional.relu6, 6.0)


SIGNED: dict[type[nn.Module], type[nn.Module]] = {
    nn.ReLU: SignedReLU,
    nn.ReLU6: SignedReLU6,
    MaskedReLU: SignedReLU,
    MaskedReLU6: SignedReLU6,
    nn.Hardswish: SignedHardswish,
    FewBitHardswish: SignedHardswish,
}
"""Classes with an approximate backward pass, by the class of the exact activation."""

MASKED: dict[type[nn.Module], type[nn.Module]] = {nn.ReLU: MaskedReLU, nn.ReLU6: MaskedReLU6}
"""Exact activations that keep one bit an element, by PyTorch's class."""

RECTIFIERS = frozenset({nn.ReLU, nn.ReLU6, MaskedReLU, MaskedReLU6, SignedReLU, SignedReLU6})
"""Classes of activations that are zero for every negative number."""


_IS_NONNEGATIVE = Derivative(pack_nonnegative, mask_gradient)


def _signed(x: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    """With the derivative of `max(x, 0)`, which is 1 at zero."""
    return with_derivative(x, activation, _IS_NONNEGATIVE)


def _masked(x: Tensor, activation: Callable[[Tensor], Tensor], high: float) -> Tensor:
    """With the derivative of `min(max(x, 0), high)`, which is 0 at the ends, as in PyTorch."""
    inside = Derivative(lambda x, last: pack_between(x, 0.0, high, last), mask_gradient)
    return with_derivative(x, activation, inside)
