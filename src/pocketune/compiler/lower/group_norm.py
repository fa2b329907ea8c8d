"""Group norm and its gradients, in few nodes, because the runtime needs memory for each.

A batch norm with given statistics is `(x - mean) / sqrt(variance + eps) * scale + shift` for every
channel: one node instead of up to seven of plain arithmetic. It applies the scale and shift of each
channel. It also divides by the deviation of each group, with the groups of all images as the
channels of one image, (1, N * groups, pieces, elements of a piece). The variance takes two passes,
as in `norm`. The second one sums squares piece by piece: the runtime's sum of many squares is
sequential, which is slow and loses up to five bits.
"""

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Normalized, Value

aten = torch.ops.aten

_PIECE = 64
"""Most squares that the runtime adds one after the other."""


@lowers(aten.native_group_norm.default)
def _group_norm(
    context: Context,
    node: fx.Node,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    sizes = _Sizes(context, batch, channels, pixels, groups)
    normalized = None
    if _has_backward(node.graph):
        normalized = sizes.normalized(context.plain(x), eps)
        y = normalized.y
    else:
        grouped = context.reshape(context.plain(x), -1, groups, sizes.elements)
        ones, zeros = (sizes.vector(groups, value) for value in (1, 0))
        y = context.builder.add("InstanceNormalization", grouped, ones, zeros, epsilon=eps)
    y = sizes.scaled(context.reshape(y, -1, *x.shape[1:]), weight, bias)
    shape = (batch, groups)
    return Value(x.shape, plain=y), Value(shape, saved=normalized), Value(shape)


def _has_backward(graph: fx.Graph) -> bool:
    """Whether the graph has a backward pass; without one, the number of images is open."""
    backward = aten.native_group_norm_backward.default
    return bool(graph.find_nodes(op="call_function", target=backward))


@lowers(aten.native_group_norm_backward.default)
def _group_norm_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    x: Value,
    mean: Value,
    inverse: Value,
    weight: Value | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    needed: list[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """The gradients of input, weight and bias.

    dx = r (w g - mean(w g) - y mean(w g y)), with the normalized input y, the inverse deviation r
    of a group, and means over the group.
    """
    b, normalized = context.builder, mean.saved
    assert isinstance(normalized, Normalized)
    sizes = _Sizes(context, batch, channels, pixels, groups)
    scale_gradient = shift_gradient = None
    if needed[1]:
        y = context.reshape(normalized.y, -1, *x.shape[1:])
        scale_gradient = sizes.channel_sum(b.add("Mul", context.plain(g), y), len(g.shape))
    if needed[2]:
        shift_gradient = sizes.channel_sum(context.plain(g), len(g.shape))
    return (
        sizes.input_gradient(g, weight, normalized) if needed[0] else None,
        scale_gradient,
        shift_gradient,
    )


class _Sizes:
    """The shapes in which a group norm computes."""

    def __init__(
        self, context: Context, batch: int, channels: int, pixels: int, groups: int
    ) -> None:
        self.context = context
        self.channels, self.all_groups = channels, batch * groups
        self.elements = channels // groups * pixels
        some = range(1, min(_PIECE, self.elements) + 1)
        self.piece = max(size for size in some if self.elements % size == 0)

    def normalized(self, x: str, eps: float) -> Normalized:
        """Every group minus its mean, divided by its deviation."""
        b, grouped = self.context.builder, self.grouped(x)
        mean = b.add("ReduceMean", grouped, self._within(2, 3), keepdims=1)
        centered = b.add("Sub", grouped, mean)
        pieces = b.add("ReduceSumSquare", centered, self._within(3), keepdims=0)
        squares = b.add("ReduceSum", pieces, self._within(0, 2), keepdims=0)
        zeros = self.vector(self.all_groups, 0)
        return Normalized(self.over_deviation(centered, zeros, squares, eps), squares, eps)

    def over_deviation(self, name: str, mean: str, squares: str, eps: float) -> str:
        """As `grouped`, minus the mean and divided by the deviation of each group.

        A constant scale, the square root of the number of elements, turns the sum of squares into
        their mean.
        """
        root, zeros = (
            self.vector(self.all_groups, self.elements**0.5),
            self.vector(self.all_groups, 0),
        )
        inputs = [name, root, zeros, mean, squares]
        return self.context.builder.add("BatchNormalization", *inputs, epsilon=eps * self.elements)

    def grouped(self, name: str) -> str:
        """(1, N * groups, pieces, elements of a piece)."""
        pieces = self.elements // self.piece
        return self.context.reshape(name, 1, self.all_groups, pieces, self.piece)

    def scaled(self, name: str, weight: Value | None, bias: Value | None) -> str:
        """(N, C, ...) times the weight plus the bias of every channel."""
        if weight is None and bias is None:
            return name
        ones, zeros = (self.vector(self.channels, value) for value in (1, 0))
        scale = ones if weight is None else self.context.plain(weight)
        shift = zeros if bias is None else self.context.plain(bias)
        inputs = [name, scale, shift, zeros, ones]
        return self.context.builder.add("BatchNormalization", *inputs, epsilon=0.0)

    def channel_sum(self, name: str, dims: int) -> Value:
        """(N, C, ...) of so many dimensions -> (C,)."""
        within = self._within(0, *range(2, dims))
        total = self.context.builder.add("ReduceSum", name, within, keepdims=0)
        return Value((self.channels,), plain=total)

    def input_gradient(self, g: Value, weight: Value | None, normalized: Normalized) -> Value:
        """See `_group_norm_backward`."""
        b = self.context.builder
        direct = self.grouped(self.scaled(self.context.plain(g), weight, None))
        mean = b.add("ReduceMean", direct, self._within(0, 2, 3), keepdims=0)
        products = b.add("Mul", direct, normalized.y)
        cross = b.add("ReduceMean", products, self._within(2, 3), keepdims=1)
        rest = b.add("Sub", direct, b.add("Mul", normalized.y, cross))
        result = self.over_deviation(rest, mean, normalized.squares, normalized.eps)
        return Value(g.shape, plain=self.context.reshape(result, -1, *g.shape[1:]))

    def _within(self, *axes: int) -> str:
        return self.context.builder.constant(axes)

    def vector(self, count: int, value: float) -> str:
        """A vector of `count` equal numbers."""
        return self.context.builder.constant(np.full(count, value, np.float32))
