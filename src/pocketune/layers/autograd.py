"""What layers with a backward pass of their own need of autograd and of the dispatcher.

Operators of PyTorch's dispatcher stand under `torch.ops.pocketune`. A traced training step names
them, so that the compiler can write them as it likes. A call costs a few microseconds;
`torch.library.custom_op`, which can do more, takes five times as long, which on small maps is
longer than the work itself.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.torch_private import gradient_transforms, in_transform

F = TypeVar("F", bound=Callable[..., Tensor])

_library = torch.library.Library("pocketune", "FRAGMENT")  # type: ignore[no-untyped-call]


def register_operator(schema: str, fake: Callable[..., Tensor] | None = None) -> Callable[[F], F]:
    """Make an operator of a function, on every device; calls of the function then go through it.

    The operator has no autograd of its own.

    Args:
        schema: name, arguments and results, as `torch.library.Library.define` takes them.
        fake: makes an empty result from the fake tensors of tracing, where the function does more
            than call PyTorch's own operators.
    """

    def register(function: F) -> F:
        name, _, _ = schema.partition("(")
        _library.define(schema)  # type: ignore[no-untyped-call]
        _library.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        if fake is not None:
            torch.library.register_fake(f"pocketune::{name}", fake, lib=_library)
        packet: Any = getattr(torch.ops.pocketune, name)
        operator: F = packet.default
        return operator

    return register


def implement_on_cuda(name: str, function: Callable[..., Tensor]) -> None:
    """Let an operator that is registered run another function on CUDA tensors."""
    _library.impl(name, function, "CUDA")  # type: ignore[no-untyped-call]


def is_recorded(*inputs: Tensor | None) -> bool:
    """Whether autograd records what is computed of these, and not for a graph to predict by.

    Where it does not, a layer is to call PyTorch's own operators and no function of its own, which
    exports and traces of a network that predicts cannot take.
    """
    if torch.onnx.is_in_onnx_export():
        return False
    if in_transform():  # of which tensors do not tell
        return torch.is_grad_enabled()
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


Backward = Callable[..., tuple[Tensor | None, ...]]


def first_order(backward: Backward) -> Backward:
    """Let the gradients that the `backward` of a layer returns raise where they are differentiated.

    PyTorch's `once_differentiable` raises only where the gradient that came in requires one; the
    kernel, and what was kept of the input, would be taken for constants without a word.
    """

    @wraps(backward)
    def once(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if _is_nested():
            _refuse()
        with torch.no_grad():
            found = backward(ctx, *gradients)
        if in_transform() or not torch.is_grad_enabled():
            return found
        return tuple(map(_refuse_more, found))

    return once


def _refuse_more(gradient: Tensor | None) -> Tensor | None:
    if gradient is None:
        return None
    refusing: Tensor = _Refused.apply(  # type: ignore[no-untyped-call]
        gradient, torch.zeros((), requires_grad=True)
    )
    return refusing


class _Refused(torch.autograd.Function):
    """The same gradient; it depends on a number so that its own is asked for."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, number: Tensor) -> Tensor:  # noqa: ARG004
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # noqa: ARG004
        _refuse()


def _is_nested() -> bool:
    """Whether a `torch.func.grad`, which always asks for a graph, is inside another."""
    return in_transform() and gradient_transforms() > 1


def _refuse() -> NoReturn:
    raise PocketuneError(
        "gradients of FilteredConv2d are averages over patches, and have no second derivatives: "
        "adapt the network by a method without gradient filtering"
    )
