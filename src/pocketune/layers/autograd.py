"""Autograd and the dispatcher, for layers that define their own backward pass.

Our operators are in `torch.ops.pocketune`. They are single nodes of a traced training step, which
the compiler lowers as a whole. A call costs a few microseconds. `torch.library.custom_op` takes
five times as long, which on small feature maps is longer than the computation itself.
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
    """Turn a function into an operator on every device; the decorated name is the operator.

    The operator is not differentiable.

    Args:
        schema: Name, arguments and results, as `torch.library.Library.define` takes them.
        fake: Makes an empty result from the fake tensors of tracing; not needed by a function
            that only calls PyTorch's operators.
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
    """Let a registered operator run this function on CUDA tensors."""
    _library.impl(name, function, "CUDA")  # type: ignore[no-untyped-call]


def is_recorded(*inputs: Tensor | None) -> bool:
    """Whether autograd records what is computed from these tensors.

    If it does not, a layer must call PyTorch's own operators: the export of a network for
    prediction does not support an `autograd.Function`.
    """
    if torch.onnx.is_in_onnx_export():
        return False
    if in_transform():  # `requires_grad` is not reliable there
        return torch.is_grad_enabled()
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


Backward = Callable[..., tuple[Tensor | None, ...]]


def first_order(backward: Backward) -> Backward:
    """Decorate a layer's `backward` so that differentiating its gradients raises an error.

    PyTorch's `once_differentiable` raises only if the incoming gradient requires one. Otherwise it
    silently treats the kernel and the kept input as constants.
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
    """The same gradient, depending on a number so that its `backward` is called."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, number: Tensor) -> Tensor:  # noqa: ARG004
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # noqa: ARG004
        _refuse()


def _is_nested() -> bool:
    """Whether a `torch.func.grad` runs inside another, which always needs a graph."""
    return in_transform() and gradient_transforms() > 1


def _refuse() -> NoReturn:
    raise PocketuneError(
        "filtered gradients, those of low rank, pruned activations and norms in 8 bits have no "
        "second derivatives; adapt the network with a method without them"
    )
