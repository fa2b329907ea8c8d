"""Operators of PyTorch's dispatcher under `torch.ops.pocketune`.

A traced training step names them, so that the compiler can write them as it likes. A call costs a
few microseconds; `torch.library.custom_op`, which can do more, takes five times as long, which on
small maps is longer than the work itself.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., torch.Tensor])

_library = torch.library.Library("pocketune", "FRAGMENT")  # type: ignore[no-untyped-call]


def register_operator(
    schema: str, fake: Callable[..., torch.Tensor] | None = None
) -> Callable[[F], F]:
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


def implement_on_cuda(name: str, function: Callable[..., torch.Tensor]) -> None:
    """Let an operator that is registered run another function on CUDA tensors."""
    _library.impl(name, function, "CUDA")  # type: ignore[no-untyped-call]
