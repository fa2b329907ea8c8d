"""GELU and SiLU, whose derivative is computed from the input alone.

The backward pass does not share nodes with the forward pass: a shared `erf` or sigmoid would be
one more tensor of that size between the two.
"""

from collections.abc import Callable
from math import pi, sqrt

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten

_CUBIC = 0.044715
_TANH_SCALE = sqrt(2 / pi)


On = Callable[..., Value]
"""Arithmetic on values: an ONNX operator and its operands."""


def _on(context: Context) -> On:
    """Arithmetic of which each call adds a node of its own."""
    return lambda op, *operands: elementwise(context, op, operands, shared=False)


@lowers(aten.gelu.default)
def _gelu(context: Context, node: fx.Node, x: Value, *, approximate: str = "none") -> Value:
    """`x (1 + erf(x / sqrt 2)) / 2`, in the order that runtimes recognize, or with tanh."""
    on = _on(context)
    curve = _tanh(on, x) if approximate == "tanh" else on("Erf", on("Div", x, sqrt(2)))
    return on("Mul", on("Mul", x, on("Add", curve, 1.0)), 0.5)


def _tanh(on: On, x: Value) -> Value:
    cubed = on("Mul", x, on("Mul", x, x))
    inner = on("Add", x, on("Mul", cubed, _CUBIC))
    return on("Tanh", on("Mul", inner, _TANH_SCALE))


@lowers(aten.gelu_backward.default)
def _gelu_backward(
    context: Context, node: fx.Node, g: Value, x: Value, *, approximate: str = "none"
) -> Value:
    slope = (_tanh_slope if approximate == "tanh" else _erf_slope)(_on(context), x)
    return elementwise(context, "Mul", [g, slope])


def _erf_slope(on: On, x: Value) -> Value:
    """The normal distribution function, plus x times its density."""
    share = on("Mul", on("Add", on("Erf", on("Div", x, sqrt(2))), 1.0), 0.5)
    bell = on("Exp", on("Mul", on("Mul", x, x), -0.5))
    return on("Add", share, on("Mul", on("Mul", x, bell), 1 / sqrt(2 * pi)))


def _tanh_slope(on: On, x: Value) -> Value:
    """`(1 + t) / 2 + x (1 - t^2) u' / 2`, with t = tanh(u)."""
    curve = _tanh(on, x)
    share = on("Mul", on("Add", curve, 1.0), 0.5)
    inner = on("Add", on("Mul", on("Mul", x, x), 3 * _CUBIC), 1.0)
    steep = on("Mul", on("Mul", x, inner), _TANH_SCALE / 2)
    return on("Add", share, on("Mul", steep, on("Sub", 1.0, on("Mul", curve, curve))))


@lowers(aten.silu.default)
def _silu(context: Context, node: fx.Node, x: Value) -> Value:
    on = _on(context)
    return on("Mul", x, on("Sigmoid", x))


@lowers(aten.silu_backward.default)
def _silu_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    """`s (1 + x (1 - s))`, with s the sigmoid of x."""
    on = _on(context)
    gate = on("Sigmoid", x)
    slope = on("Mul", gate, on("Add", on("Mul", x, on("Sub", 1.0, gate)), 1.0))
    return elementwise(context, "Mul", [g, slope])
