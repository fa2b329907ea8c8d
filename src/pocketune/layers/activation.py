"""Activations that keep one bit an element for the backward pass.

`Masked...` are exact. `Signed...` have the approximate backward pass of MobileTL (Chiang et al.,
AAAI 2023): the gradient passes where the input is not negative. H-swish then keeps one bit an
element instead of its whole input, and ReLU6 needs one comparison instead of two.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pocketune.layers.autograd import is_recorded
from pocketune.layers.bits import is_channels_last, mask_gradient, pack_between, pack_nonnegative
from pocketune.layers.few_bit import FewBitHardswish


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
        return _masked(x, float("inf"))


class MaskedReLU6(nn.Module):
    """`min(max(x, 0), 6)` with its exact gradient, as `nn.ReLU6`.

    Kept for the backward pass: 1 bit an element; `nn.ReLU6` keeps its input.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape and memory format."""
        return _masked(x, 6.0)


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


def _signed(x: Tensor, activation: Any) -> Tensor:
    y: Tensor = (_Signed.apply if is_recorded(x) else _plain)(x, activation)
    return y


def _plain(x: Tensor, activation: Any) -> Any:
    return activation(x)


def _masked(x: Tensor, high: float) -> Tensor:
    if not is_recorded(x):
        return _clamped(x, high)
    y: Tensor = _Masked.apply(x, high)  # type: ignore[no-untyped-call]
    return y


def _clamped(x: Tensor, high: float) -> Tensor:
    return functional.relu(x) if high == float("inf") else functional.hardtanh(x, 0.0, high)


class _Signed(torch.autograd.Function):
    """`activation(x)` with the derivative of `max(x, 0)`, which is 1 at zero."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, activation: Any) -> Any:
        return _plain(x, activation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, _ = inputs
        ctx.channels_last = is_channels_last(x)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(pack_nonnegative(x, ctx.channels_last))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        return _mask(gradient, packed, ctx.channels_last), None


class _Masked(torch.autograd.Function):
    """`min(max(x, 0), high)`; no gradient at the ends, as in PyTorch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, high: float) -> Any:
        return _clamped(x, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, high = inputs
        ctx.channels_last = is_channels_last(x)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(pack_between(x, 0.0, high, ctx.channels_last))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        return _mask(gradient, packed, ctx.channels_last), None


def _mask(gradient: Tensor, packed: Tensor, channels_last: bool) -> Tensor:
    g: Tensor = _Mask.apply(gradient, packed, channels_last)  # type: ignore[no-untyped-call]
    return g


class _Mask(torch.autograd.Function):
    """A differentiable `mask_gradient`: it is linear, so it is its own derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, packed: Tensor, channels_last: bool) -> Any:
        return mask_gradient(gradient, packed, channels_last)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, packed, ctx.channels_last = inputs
        ctx.save_for_backward(packed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        return _mask(gradient, packed, ctx.channels_last), None, None
