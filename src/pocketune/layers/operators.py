"""Operators of PyTorch's dispatcher under `torch.ops.pocketune`.

A call costs a few microseconds; `torch.library.custom_op`, which can do more, takes five times as
long, which on small maps is longer than the work itself.
"""

from collections.abc import Callable

import torch

_library = torch.library.Library("pocketune", "FRAGMENT")  # type: ignore[no-untyped-call]


def register_operator(schema: str, implementation: Callable[..., torch.Tensor]) -> None:
    """Make `implementation` the operator on every device, and for the fake tensors of tracing.

    The operator has no autograd of its own.

    Args:
        schema: name, arguments and results, as `torch.library.Library.define` takes them.
        implementation: made of PyTorch's own operators.
    """
    name, _, _ = schema.partition("(")
    _library.define(schema)  # type: ignore[no-untyped-call]
    _library.impl(name, implementation, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
