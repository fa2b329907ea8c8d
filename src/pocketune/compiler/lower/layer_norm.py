"""Layer norm and its gradients."""

from math import prod

import numpy as np
import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


@lowers(aten.native_layer_norm.default)
def _layer_norm(
    context: Context,
    node: fx.Node,
    x: Value,
    sizes: list[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> tuple[Value, Value, Value]:
    inputs = [context.plain(x), _scale(context, sizes, weight)]
    if bias is not None:
        inputs.append(context.plain(bias))
    y, mean, inverse = context.builder.add_many(
        "LayerNormalization", inputs, 3, axis=-len(sizes), epsilon=eps
    )
    shape = (*x.shape[: -len(sizes)], *(1,) * len(sizes))
    return Value(x.shape, plain=y), Value(shape, plain=mean), Value(shape, plain=inverse)


@lowers(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    x: Value,
    sizes: list[int],
    mean: Value,
    inverse: Value,
    weight: Value | None,
    bias: Value | None,
    needed: list[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """The gradients; y is the normalized input, r the inverse deviation, means are over `sizes`.

    dx = r (w g - mean(w g) - y mean(w g y))
    """
    b, given = context.builder, context.plain(g)
    centered = b.add("Sub", context.plain(x), context.plain(mean))
    y = b.add("Mul", centered, context.plain(inverse))
    leading = b.constant(np.arange(len(x.shape) - len(sizes)))
    trailing = b.constant(np.arange(-len(sizes), 0))

    def total(name: str) -> Value:
        return Value(tuple(sizes), plain=b.add("ReduceSum", name, leading, keepdims=0))

    def input_gradient() -> Value:
        direct = given if weight is None else b.add("Mul", given, context.plain(weight))
        rest = b.add("Sub", direct, b.add("ReduceMean", direct, trailing, keepdims=1))
        cross = b.add("ReduceMean", b.add("Mul", direct, y), trailing, keepdims=1)
        rest = b.add("Sub", rest, b.add("Mul", y, cross))
        return Value(x.shape, plain=b.add("Mul", rest, context.plain(inverse)))

    return (
        input_gradient() if needed[0] else None,
        total(b.add("Mul", given, y)) if needed[1] else None,
        total(given) if needed[2] else None,
    )


def _scale(context: Context, sizes: list[int], weight: Value | None) -> str:
    if weight is not None:
        return context.plain(weight)
    return context.builder.constant(np.ones(prod(sizes), np.float32).reshape(sizes))
