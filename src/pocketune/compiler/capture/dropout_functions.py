"""PyTorch's functions that drop, which attention and the forward methods of networks call."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_TOGETHER: dict[Any, int | None] = {F.dropout: None, F.dropout2d: 2}
"""For each function that drops, the first dimension that it drops together with all behind it."""

_DROPPING = frozenset({"dropout", "dropout2d", "scaled_dot_product_attention"})
"""Functions that may drop something."""


def may_drop(network: nn.Module) -> bool:
    """Whether a forward pass may call a dropout; finding out by a run takes longer."""
    modules = list(network.modules())
    attention = (each for each in modules if isinstance(each, nn.MultiheadAttention))
    kinds = {type(module) for module in modules}
    return (
        any(each.dropout > 0 for each in attention)
        or any(isinstance(each, (nn.Dropout, nn.Dropout2d)) and each.p > 0 for each in modules)
        or any(map(_names_dropout, kinds))
    )


def _names_dropout(kind: type[nn.Module]) -> bool:
    """Whether a method of a class has the name of a function that may drop."""
    own = (base for base in kind.__mro__ if not base.__module__.startswith("torch."))
    methods = (each for base in own for each in vars(base).values())
    codes = (getattr(each, "__code__", None) for each in methods)
    return any(code is not None and not _DROPPING.isdisjoint(code.co_names) for code in codes)


class Dropouts(TorchFunctionMode):
    """Calls another function in place of those that drop something.

    Args:
        instead: Takes the tensor, the rate and the first dimension that is dropped together. What
            it returns is the result of the call, unless it is None.
        always: Whether it also takes the place of calls that drop nothing in evaluation.
    """

    def __init__(
        self, instead: Callable[[Tensor, float, int | None], Tensor | None], *, always: bool = False
    ) -> None:
        super().__init__()
        self._instead, self._always = instead, always

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, or what stands for a dropout."""
        kwargs = kwargs or {}
        if func in _TOGETHER:
            x, rate, drops = _arguments(*args, **kwargs)
            if (
                (drops or self._always)
                and rate > 0
                and (result := self._instead(x, rate, _TOGETHER[func])) is not None
            ):
                return result
        return func(*args, **kwargs)


def _arguments(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,  # noqa: ARG001
) -> tuple[Tensor, float, bool]:
    """Of the arguments of a function that drops: tensor, rate, and whether it is training."""
    return input, p, training
