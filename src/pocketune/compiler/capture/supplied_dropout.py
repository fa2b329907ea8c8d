"""The modules that take the places of dropouts in a step that is compiled."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from pocketune.layers.autograd import is_recorded, register_operator


@register_operator("supplied_dropout(Tensor x) -> Tensor", torch.empty_like)
def in_evaluation(x: Tensor) -> Tensor:
    """A copy: what a dropout does in evaluation, as an operator that shows where it is."""
    return x.clone()


class SuppliedDropout(nn.Module):
    """Multiplies by `mask` in training, and does nothing in evaluation.

    `mask` is a buffer that state dicts leave out. It holds ones until it is filled: with 0 for an
    element that is dropped, and 1 / `keep` for one that is kept.

    Args:
        keep: Probability that an element is kept, in (0, 1).
        shape: Of the mask, the batch included: that of the input, or 1 in the dimensions that are
            dropped together.
        together: The first dimension that is dropped together with all behind it: 2 for whole
            maps, as `nn.Dropout2d` does, 1 for whole images; None if each element is by itself.
    """

    mask: Tensor

    def __init__(self, keep: float, shape: tuple[int, ...], *, together: int | None = None) -> None:
        super().__init__()
        self.keep = keep
        self.together = together
        self.register_buffer("mask", torch.ones(shape), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> the same shape; in training, the batch is that of the mask."""
        if self.training:
            return x * self.mask
        return x if is_recorded(x) else in_evaluation(x)

    def extra_repr(self) -> str:
        """Keep and shape, for `repr`."""
        return f"keep={self.keep}, shape={tuple(self.mask.shape)}"


class RepeatedDropout(nn.Module):
    """Dropouts that stand for the calls of one, in a forward pass that calls it several times.

    Args:
        calls: That of each call, in order; the identity for one that drops nothing.
    """

    def __init__(self, calls: Iterable[nn.Module]) -> None:
        super().__init__()
        self.calls = nn.ModuleList(calls)
        self._next = 0

    def forward(self, x: Tensor) -> Tensor:
        """As the module whose turn it is."""
        if not self.training:  # which may call it less often
            drops = all(isinstance(each, SuppliedDropout) for each in self.calls)
            return in_evaluation(x) if drops and not is_recorded(x) else x
        dropout = self.calls[self._next]
        self._next = (self._next + 1) % len(self.calls)
        result: Tensor = dropout(x)
        return result
