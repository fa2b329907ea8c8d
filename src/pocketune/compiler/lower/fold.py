"""Fold a frozen scale and any shift into the convolution before, and a scale into its gradient.

A norm on running statistics is `x * scale + shift`. Behind a frozen convolution the scale goes
into the kernel, forward and backward, and the shift becomes the bias; nothing the size of an
activation is left to do. The convolution without them is then dead and left out of the graph.
"""

from dataclasses import dataclass

from torch import Tensor

from pocketune.compiler.lower.context import Context
from pocketune.compiler.lower.geometry import Convolved, convolve
from pocketune.compiler.lower.value import Value


@dataclass(frozen=True)
class Scaled:
    """A value times a constant (1, C, 1, 1)."""

    value: Value | float
    scale: Tensor


def fold_into_convolution(
    context: Context, op: str, a: Value | float, b: Value | float
) -> Value | None:
    """`a op b` as one convolution where `a` is a convolution's output and `b` per channel."""
    if not (isinstance(a, Value) and isinstance(b, Value) and isinstance(a.made_by, Convolved)):
        return None
    if not (len(b.shape) == 4 and b.shape == (1, a.shape[1], 1, 1)):
        return None
    made = a.made_by
    if op == "Mul" and b.constant is not None and made.w.constant is not None:
        if made.bias is not None and made.bias.constant is None:
            return None
        w = _scaled_kernel(made.w.constant, b.constant)
        bias = made.bias
        if bias is not None and bias.constant is not None:
            bias = Value(bias.shape, constant=bias.constant * b.constant.flatten())
        return convolve(context, made.geo, made.x, w, bias, a.shape)
    if op == "Add" and made.bias is None and (b.constant is not None or b.vector is not None):
        return convolve(context, made.geo, made.x, made.w, _vector(b), a.shape)
    if op == "Add" and made.bias is not None and made.bias.constant is not None:
        if b.constant is None:
            return None
        total = Value(made.bias.shape, constant=made.bias.constant + b.constant.flatten())
        return convolve(context, made.geo, made.x, made.w, total, a.shape)
    return None


def fold_scale(scaled: Scaled, w: Value) -> tuple[Value, Value]:
    """The gradient before its scale, and the kernel with the scale in it."""
    assert isinstance(scaled.value, Value)
    assert w.constant is not None
    return scaled.value, _scaled_kernel(w.constant, scaled.scale)


def _scaled_kernel(kernel: Tensor, scale: Tensor) -> Value:
    return Value(tuple(kernel.shape), constant=kernel * scale.reshape(-1, 1, 1, 1))


def _vector(b: Value) -> Value:
    shape = (b.shape[1],)
    if b.constant is not None:
        return Value(shape, constant=b.constant.flatten())
    return Value(shape, plain=b.vector)
