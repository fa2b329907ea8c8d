"""Group norm and its gradients, written by hand: two passes for the variance, as in `norm`."""

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


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
    b, shape = context.builder, (x.shape[0], groups)
    sizes = _Sizes(context, channels, pixels, groups)
    mean = sizes.mean_of_groups(sizes.grouped(context.plain(x)))
    centred = b.add("Sub", sizes.grouped(context.plain(x)), mean)
    variance = sizes.mean_of_groups(b.add("Mul", centred, centred))
    root = b.add("Sqrt", b.add("Add", variance, b.constant(eps)))
    inverse = b.add("Reciprocal", root)
    y = context.reshape(b.add("Mul", centred, inverse), -1, *x.shape[1:])
    for op, factor in (("Mul", weight), ("Add", bias)):
        if factor is not None:
            y = b.add(op, y, context.reshape(context.plain(factor), 1, channels, 1, 1))
    mean, inverse = (context.reshape(name, -1, groups) for name in (mean, inverse))
    return Value(x.shape, plain=y), Value(shape, plain=mean), Value(shape, plain=inverse)


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
    """The gradients of a group of n elements; r is its inverse deviation, sums are over it.

    dx = r w g - r / n sum(w g) - (x - mean) r^3 / n sum(w g (x - mean))
    """
    b, sizes = context.builder, _Sizes(context, channels, pixels, groups)
    mean_name, r = (context.reshape(context.plain(v), -1, groups, 1) for v in (mean, inverse))
    centred = b.add("Sub", sizes.grouped(context.plain(x)), mean_name)
    planes = context.reshape(context.plain(g), -1, channels, pixels)
    product = b.add("Mul", planes, context.reshape(centred, -1, channels, pixels))
    total, cross = sizes.sum_of_planes(planes), sizes.sum_of_planes(product)  # (N, C, 1)
    return (
        sizes.input_gradient(g, weight, centred, r, total, cross) if needed[0] else None,
        sizes.sum_of_images(b.add("Mul", sizes.by_channel(cross), r)) if needed[1] else None,
        sizes.sum_of_images(total) if needed[2] else None,
    )


class _Sizes:
    """The shapes in which a group norm computes; the number of images may be open."""

    def __init__(self, context: Context, channels: int, pixels: int, groups: int) -> None:
        self.context = context
        self.channels, self.pixels, self.groups = channels, pixels, groups
        self.members = channels // groups

    def grouped(self, name: str) -> str:
        """(N, groups, elements of a group)."""
        return self.context.reshape(name, -1, self.groups, self.members * self.pixels)

    def by_channel(self, name: str) -> str:
        """(N, C, 1) as (N, groups, channels of a group)."""
        return self.context.reshape(name, -1, self.groups, self.members)

    def mean_of_groups(self, name: str) -> str:
        """(N, groups, elements) -> (N, groups, 1)."""
        count = self.members * self.pixels
        return self.context.builder.add("MatMul", name, self._column(count, 1 / count))

    def sum_of_planes(self, name: str) -> str:
        """(N, C, pixels) -> (N, C, 1)."""
        return self.context.builder.add("MatMul", name, self._column(self.pixels, 1.0))

    def sum_of_images(self, name: str) -> Value:
        """Anything of N * C elements -> (C,)."""
        b = self.context.builder
        rows = self.context.reshape(name, -1, self.channels)
        total = b.add("ReduceSum", rows, b.constant(np.array([0])), keepdims=0)
        return Value((self.channels,), plain=total)

    def input_gradient(
        self, g: Value, weight: Value | None, centred: str, r: str, total: str, cross: str
    ) -> Value:
        """See `_group_norm_backward`."""
        b, context = self.context.builder, self.context
        gain = self._gain(weight)
        share = b.constant(-1 / (self.members * self.pixels))
        ones = self._column(self.members, 1.0)
        offset, slope = (
            b.add("Mul", b.add("MatMul", b.add("Mul", self.by_channel(sums), gain), ones), share)
            for sums in (total, cross)
        )  # (N, groups, 1)
        slope = b.add("Mul", slope, b.add("Mul", r, b.add("Mul", r, r)))
        through = b.add("Add", b.add("Mul", centred, slope), b.add("Mul", offset, r))
        scale = context.reshape(b.add("Mul", r, gain), -1, self.channels, 1, 1)
        direct = b.add("Mul", context.plain(g), scale)
        through = context.reshape(through, -1, *g.shape[1:])
        return Value(g.shape, plain=b.add("Add", direct, through))

    def _gain(self, weight: Value | None) -> str:
        """(1, groups, channels of a group)."""
        if weight is None:
            return self.context.builder.constant(
                np.ones((1, self.groups, self.members), np.float32)
            )
        return self.by_channel(self.context.plain(weight))

    def _column(self, count: int, value: float) -> str:
        return self.context.builder.constant(np.full((count, 1), value, np.float32))
