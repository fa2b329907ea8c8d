"""Activations whose derivative is kept in a few bits an element, in place of their input."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pocketune.layers.autograd import is_recorded
from pocketune.layers.bits import is_channels_last


class Derivative(NamedTuple):
    """How the derivative of an activation is kept.

    Attributes:
        pack: Takes the input and whether it is channels-last, and gives the derivative in bits.
        scale: Takes a gradient, these bits and the same, and gives the product with the derivative.
    """

    pack: Callable[[Tensor, bool], Tensor]
    scale: Callable[[Tensor, Tensor, bool], Tensor]


def with_derivative(x: Tensor, exact: Callable[[Tensor], Tensor], derivative: Derivative) -> Tensor:
    """`exact(x)`, of which only the packed derivative is kept for the backward pass."""
    if not is_recorded(x):
        return exact(x)
    y: Tensor = _Activation.apply(x, exact, derivative)  # type: ignore[no-untyped-call]
    return y


class _Activation(torch.autograd.Function):
    """`exact(x)` with a derivative that may be another one than its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, exact: Any, derivative: Derivative) -> Any:  # noqa: ARG004
        return exact(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        x, _, ctx.derivative = inputs
        ctx.channels_last = is_channels_last(x)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(ctx.derivative.pack(x, ctx.channels_last))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        return _scaled(gradient, packed, ctx.derivative.scale, ctx.channels_last), None, None


def _scaled(gradient: Tensor, packed: Tensor, scale: Any, channels_last: bool) -> Tensor:
    g: Tensor = _Scaled.apply(gradient, packed, scale, channels_last)  # type: ignore[no-untyped-call]
    return g


class _Scaled(torch.autograd.Function):
    """A differentiable `scale`: it is linear, so it is its own derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, packed: Tensor, scale: Any, channels_last: bool) -> Any:
        return scale(gradient, packed, channels_last)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        _, packed, ctx.scale, ctx.channels_last = inputs
        ctx.save_for_backward(packed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (packed,) = ctx.saved_tensors
        return _scaled(gradient, packed, ctx.scale, ctx.channels_last), None, None, None
