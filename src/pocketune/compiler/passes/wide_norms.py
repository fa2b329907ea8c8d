"""Join 1x1 convolutions that widen their input with the norms with batch statistics behind them.

The two operators that the pass makes are lowered by `pocketune.compiler.lower.wide_norm`.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

import torch
from torch import fx

from pocketune.compiler.passes.program import Program, shape_of

aten = torch.ops.aten

WIDER = 2
"""How many times as many outputs as inputs a convolution has at least."""

PIXELS_SHARE = 1 / 16
"""Pixels of the batch, at least, for each entry of the covariance matrix.

On smaller maps, the products of the covariance take longer than the passes over the map that they
save.
"""


def wide_norm(*_: Any) -> NoReturn:
    """The target of a node `(x, kernel, weight, bias, running_mean, running_var, momentum, eps)`.

    Its value is the output of the norm.
    """
    raise NotImplementedError("it is only lowered")


def wide_norm_backward(*_: Any) -> NoReturn:
    """The target of a node `(g, y)`, with `y` a `wide_norm`.

    Its items are the gradients of input, kernel, weight and bias.
    """
    raise NotImplementedError("it is only lowered")


class _Joined(NamedTuple):
    """A norm with its gradient, and the gradient of the convolution before it."""

    norm: fx.Node
    norm_backward: fx.Node
    convolution_backward: fx.Node


def join_wide_norms(program: Program) -> None:
    """Replace such convolutions and norms, and their gradients, by `wide_norm`.

    Requires: copies are skipped. Afterwards no convolution that is trained, has no bias and is
    `WIDER` than its input is read by a norm with batch statistics alone, where maps are large
    enough.
    """
    needed = program.needed()
    order = set(needed)
    for node in needed:
        if node.target is aten.convolution.default and _widens(node):
            joined = _readers(node, order)
            if joined is not None:
                _join(program, node, joined)


def _widens(node: fx.Node) -> bool:
    arguments: Any = node.args
    x, kernel, bias, stride, padding, _, transposed, _, groups = arguments
    shape, (outputs, inputs, *sides) = shape_of(x), shape_of(kernel)
    if len(shape) != 4 or sides != [1, 1] or bias is not None or transposed or groups > 1:
        return False
    stays = set(stride) == {1} and set(padding) == {0}
    pixels = shape[0] * shape[2] * shape[3]
    return stays and outputs >= WIDER * inputs and pixels >= PIXELS_SHARE * inputs**2


def _readers(convolution: fx.Node, needed: set[fx.Node]) -> _Joined | None:
    """The norm that alone reads a convolution, and the gradients of both, if they are trained."""
    readers = {user.target: user for user in convolution.users if user in needed}
    norm = readers.pop(aten.native_batch_norm.default, None)
    back = readers.pop(aten.native_batch_norm_backward.default, None)
    if norm is None or back is None or readers:
        return None
    x, *affine, training, _, _ = norm.args
    if x is not convolution or not training or None in affine:
        return None
    through = [item for item in back.users if item.args[1] == 0 and item in needed]
    before = [user for item in through for user in item.users if user in needed]
    if len(before) != 1 or before[0].target is not aten.convolution_backward.default:
        return None
    (end,) = before
    trained = end.args[0] is through[0] and end.args[10][1]  # type: ignore[index]
    return _Joined(norm, back, end) if trained else None


def _join(program: Program, convolution: fx.Node, joined: _Joined) -> None:
    norm, back, end = joined
    _, weight, bias, mean, variance, _, momentum, eps = norm.args
    arguments = (*convolution.args[:2], weight, bias, mean, variance, momentum, eps)
    y = program.call(norm, wide_norm, arguments)
    gradients = program.call(back, wide_norm_backward, (back.args[0], y))
    dx, dkernel, dweight, dbias = (
        program.call(back, operator.getitem, (gradients, i)) for i in range(4)
    )
    for source, items in (norm, [y]), (back, [None, dweight, dbias]), (end, [dx, dkernel]):
        for user in list(source.users):
            index: Any = user.args[1]
            if user.target is operator.getitem and index < len(items) and items[index]:
                items[index].meta.update(user.meta)
                program.replace(user, items[index])
