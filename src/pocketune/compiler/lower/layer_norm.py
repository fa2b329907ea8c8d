"""Layer norm and its gradients.

The backward pass reads the normalized input and the inverse deviation. The input itself is not
kept: in a transformer it is the sum of all blocks so far, which nothing else needs. The output
follows from the normalized input by the weight and the bias; see `passes.activations`.
"""

from typing import Any

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
    b, apart = context.builder, _is_normalized_again(node)
    ones = b.constant(np.ones(sizes, np.float32))
    inputs = [context.plain(x), ones if weight is None or apart else context.plain(weight)]
    if bias is not None and not apart:
        inputs.append(context.plain(bias))
    y, _, inverse = b.add_many(
        "LayerNormalization", inputs, 3, axis=-len(sizes), epsilon=eps, hint="layer_norm"
    )
    normalized = Value(x.shape, plain=y)
    if apart and weight is not None:
        y = b.add("Mul", y, context.plain(weight))
    if apart and bias is not None:
        y = b.add("Add", y, context.plain(bias))
    shape = (*x.shape[: -len(sizes)], *(1,) * len(sizes))
    return Value(x.shape, plain=y), Value(shape, saved=normalized), Value(shape, plain=inverse)


def _is_normalized_again(norm: fx.Node) -> bool:
    """Whether the backward pass needs the normalized input."""
    for reader in (reader for part in norm.users for reader in part.users):
        if reader.target is aten.native_layer_norm_backward.default:
            needed: Any = reader.args[7]
            return bool(needed[0] or needed[1])
    return False


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
    assert isinstance(mean.saved, Value)
    b, given, y = context.builder, context.plain(g), context.plain(mean.saved)
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
