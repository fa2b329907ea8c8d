"""Backward passes of which the second derivative is refused."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import Tensor

from pocketune.errors import PocketuneError
from pocketune.layers.recorded import in_transform

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
    if not in_transform():
        return False
    kinds = [level.key() for level in torch._C._functorch.get_interpreter_stack() or ()]
    return kinds.count(torch._C._functorch.TransformType.Grad) > 1


def _refuse() -> NoReturn:
    raise PocketuneError(
        "gradients of FilteredConv2d are averages over patches, and have no second derivatives: "
        "adapt the network by a method without gradient filtering"
    )
