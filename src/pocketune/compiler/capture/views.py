"""Views of tensors, which a network may write into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten


class View(NamedTuple):
    """A view of a tensor or of a part of it, as `x[:, 2:4]` and `x.flatten(2)` make.

    Attributes:
        view: The view.
        whole: The tensor.
        read: Gives the view again.
        written: Gives the whole tensor with what the view holds now. It raises a `RuntimeError`
            for positions that it cannot write.
    """

    view: Tensor
    whole: Tensor
    read: Callable[[], Tensor]
    written: Callable[[], Tensor]


def _write_slice(
    view: Tensor,
    whole: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    dim %= whole.dim()
    return _write_positions(view, whole, dim, range(whole.shape[dim])[start:end:step])


def _write_selected(view: Tensor, whole: Tensor, dim: int, index: int) -> Tensor:
    dim %= whole.dim()
    return _write_positions(view.unsqueeze(dim), whole, dim, range(whole.shape[dim])[index:][:1])


def _write_positions(inside: Tensor, whole: Tensor, dim: int, positions: range) -> Tensor:
    """The whole tensor with other values in some positions along a dimension."""
    if positions.step != 1:
        return _write_in_turns(inside, whole, dim, positions)
    before = whole.narrow(dim, 0, positions.start)
    behind = whole.narrow(dim, positions.stop, whole.shape[dim] - positions.stop)
    return torch.cat([part for part in (before, inside, behind) if part.shape[dim]], dim)


def _write_in_turns(inside: Tensor, whole: Tensor, dim: int, positions: range) -> Tensor:
    """The same for every second position, or every third: the others are a dimension of steps."""
    count, step, size = len(positions), positions.step, whole.shape[dim]
    if count * step != size or positions.start >= step:
        raise RuntimeError(
            f"it writes into {count} of {size} positions of a tensor, {step} apart, and only "
            "consecutive ones can be written, or every one that is as far apart; write a slice "
            "without a step"
        )
    apart = whole.reshape(*whole.shape[:dim], count, step, *whole.shape[dim + 1 :])
    first = positions.start
    written = _write_positions(inside.unsqueeze(dim + 1), apart, dim + 1, range(first, first + 1))
    return written.reshape(whole.shape)


def _write_permuted(view: Tensor, whole: Tensor, dims: Sequence[int]) -> Tensor:
    order = [dim % whole.dim() for dim in dims]
    return view.permute([order.index(dim) for dim in range(whole.dim())])


def _write_transposed(view: Tensor, _: Tensor) -> Tensor:
    return view.t()


def _write_reshaped(view: Tensor, whole: Tensor, *_: Any) -> Tensor:
    return view.reshape(whole.shape)


_VIEWS: dict[Any, Callable[..., Tensor]] = {
    aten.alias.default: _write_reshaped,
    aten.detach.default: _write_reshaped,
    aten.permute.default: _write_permuted,
    aten.select.int: _write_selected,
    aten.slice.Tensor: _write_slice,
    aten.squeeze.dim: _write_reshaped,
    aten.squeeze.dims: _write_reshaped,
    aten.t.default: _write_transposed,
    aten.unsqueeze.default: _write_reshaped,
    aten.view.default: _write_reshaped,
}
"""How the tensor is written of which an operator gives a view."""


def _refuse(operator: Any, *_: Any) -> Tensor:
    raise RuntimeError(
        f"it writes into a view that {operator} gives; write into the tensor itself, or into a "
        "slice of it"
    )


@cache
def _gives_view(operator: Any) -> bool:
    """Whether an operator gives one view, of its first argument."""
    aliases = [
        each.alias_info for each in (*operator._schema.arguments[:1], *operator._schema.returns)
    ]
    return len(aliases) == 2 and all(alias is not None and not alias.is_write for alias in aliases)


def view_of(operator: Any, arguments: tuple[Any, ...], view: Any) -> View | None:
    """The view that an operator gives of its first argument; None for any other operator."""
    whole, *rest = arguments or (None,)
    if view is whole or not _gives_view(operator):
        return None
    write = _VIEWS.get(operator) or partial(_refuse, operator)
    read, written = partial(operator, *arguments), partial(write, view, whole, *rest)
    return View(view, whole, read, written)
