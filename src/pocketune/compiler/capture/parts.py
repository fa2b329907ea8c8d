"""Views of parts of a tensor, which a network may write into."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Part(NamedTuple):
    """A view of some positions of a tensor along one dimension, as `x[:, 2:4]` makes.

    Attributes:
        view: The view.
        whole: The tensor.
        read: Gives the view again.
        dim: The dimension.
        positions: The positions.
    """

    view: Tensor
    whole: Tensor
    read: Callable[[], Tensor]
    dim: int
    positions: range

    def written(self) -> Tensor:
        """The whole tensor with what the view holds now in these positions.

        Raises:
            RuntimeError: They are not consecutive.
        """
        dim, start, end = self.dim, self.positions.start, self.positions.stop
        if self.positions.step != 1:
            raise RuntimeError(
                f"it writes into positions of a tensor that are {self.positions.step} apart, and "
                "only consecutive ones can be written"
            )
        inside = self.view if self.view.dim() == self.whole.dim() else self.view.unsqueeze(dim)
        before = self.whole.narrow(dim, 0, start)
        behind = self.whole.narrow(dim, end, self.whole.shape[dim] - end)
        return torch.cat([part for part in (before, inside, behind) if part.shape[dim]], dim)


def _sliced(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> tuple[int, range]:
    return dim % x.dim(), range(x.shape[dim])[start:end:step]


def _selected(x: Tensor, dim: int, index: int) -> tuple[int, range]:
    return dim % x.dim(), range(x.shape[dim])[index:][:1]


_PARTS: dict[Any, Callable[..., tuple[int, range]]] = {
    torch.ops.aten.slice.Tensor: _sliced,
    torch.ops.aten.select.int: _selected,
}
"""The dimension and the positions of the part of a tensor that an operator gives a view of."""


def part_of(operator: Any, arguments: tuple[Any, ...], view: Any) -> Part | None:
    """The part of a tensor that an operator gives a view of; None for any other operator."""
    place = _PARTS.get(operator)
    if place is None:
        return None
    return Part(view, arguments[0], partial(operator, *arguments), *place(*arguments))
