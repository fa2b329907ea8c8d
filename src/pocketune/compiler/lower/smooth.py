"""GELU, softplus, Mish, ELU and tanh: activations without rows of their own, and derivatives."""

from math import pi, sqrt

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten

# of GELU's approximation by tanh: u = BETA * (x + CUBE * x^3)
BETA, CUBE = sqrt(2 / pi), 0.044715


class _Arithmetic:
    """Elementwise operators on values of one shape."""

    def __init__(self, context: Context, shape: tuple[int, ...]) -> None:
        self._context, self._shape = context, shape

    def __call__(self, op: str, *operands: Value | float) -> Value:
        return elementwise(self._context, op, operands, self._shape)

    def sum(self, a: Value | float, *others: Value | float) -> Value:
        """Of two or more."""
        for other in others:
            a = self("Add", a, other)
        assert isinstance(a, Value)
        return a

    def product(self, a: Value | float, *others: Value | float) -> Value:
        """Of two or more."""
        for other in others:
            a = self("Mul", a, other)
        assert isinstance(a, Value)
        return a


@lowers(aten.gelu.default)
def _gelu(context: Context, node: fx.Node, x: Value, approximate: str = "none") -> Value:
    of = _Arithmetic(context, x.shape)
    return of.product(x, _share(of, x, approximate))


@lowers(aten.gelu_backward.default)
def _gelu_backward(
    context: Context, node: fx.Node, g: Value, x: Value, approximate: str = "none"
) -> Value:
    """The share that passes, and x times its slope."""
    of = _Arithmetic(context, x.shape)
    share = _share(of, x, approximate)
    if approximate == "none":
        density = of("Exp", of.product(x, x, -0.5))
        slope = of.product(density, 1 / sqrt(2 * pi))
    else:  # (1 + tanh u) / 2 has the slope 2 share (1 - share) du/dx
        inner = of.sum(of.product(x, x, 3 * CUBE * BETA), BETA)
        slope = of.product(share, of("Sub", 1.0, share), inner, 2.0)
    return of.product(g, of.sum(share, of.product(x, slope)))


def _share(of: _Arithmetic, x: Value, approximate: str) -> Value:
    """What of x GELU lets pass, in (0, 1)."""
    if approximate == "none":
        bent = of("Erf", of.product(x, sqrt(0.5)))
    else:
        cube = of.product(x, x, x, CUBE)
        bent = of("Tanh", of.product(of.sum(x, cube), BETA))
    return of.product(of.sum(bent, 1.0), 0.5)


@lowers(aten.softplus.default)
def _softplus(
    context: Context,
    node: fx.Node,
    x: Value,
    beta: float = 1,
    threshold: float = 20,
) -> Value:
    of = _Arithmetic(context, x.shape)
    return of.product(of("Softplus", of.product(x, float(beta))), 1 / beta)


@lowers(aten.softplus_backward.default)
def _softplus_backward(
    context: Context, node: fx.Node, g: Value, x: Value, beta: float, threshold: float
) -> Value:
    of = _Arithmetic(context, x.shape)
    return of.product(g, of("Sigmoid", of.product(x, float(beta))))


@lowers(aten.mish.default, aten.mish_.default)
def _mish(context: Context, node: fx.Node, x: Value) -> Value:
    of = _Arithmetic(context, x.shape)
    return of.product(x, of("Tanh", of("Softplus", x)))


@lowers(aten.mish_backward.default)
def _mish_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    of = _Arithmetic(context, x.shape)
    gate = of("Tanh", of("Softplus", x))
    bend = of.product(x, of("Sigmoid", x), of("Sub", 1.0, of.product(gate, gate)))
    return of.product(g, of.sum(gate, bend))


@lowers(aten.elu.default, aten.elu_.default)
def _elu(
    context: Context, node: fx.Node, x: Value, alpha: float = 1, scale: float = 1, inner: float = 1
) -> Value:
    return _exponential(context, x, alpha, scale, inner)


def _exponential(context: Context, x: Value, alpha: float, scale: float, inner: float) -> Value:
    of = _Arithmetic(context, x.shape)
    low = of("Sub", of("Exp", of.product(of("Min", x, 0.0), float(inner))), 1.0)
    bent = of("Where", of("Greater", x, 0.0), x, of.product(low, float(alpha)))
    return of.product(bent, float(scale))


@lowers(aten.celu.default, aten.celu_.default)
def _celu(context: Context, node: fx.Node, x: Value, alpha: float = 1) -> Value:
    return _exponential(context, x, alpha, 1, 1 / alpha)


@lowers(aten.elu_backward.default)
def _elu_backward(
    context: Context,
    node: fx.Node,
    g: Value,
    alpha: float,
    scale: float,
    inner: float,
    is_result: bool,
    x: Value,
) -> Value:
    """`x` is the result where the activation has written over its input."""
    of = _Arithmetic(context, x.shape)
    if is_result:
        slope = of.product(of.sum(x, float(alpha * scale)), float(inner))
    else:
        low = of("Exp", of.product(of("Min", x, 0.0), float(inner)))
        slope = of.product(low, float(alpha * scale * inner))
    return of.product(g, of("Where", of("Greater", x, 0.0), float(scale), slope))


@lowers(aten.tanh_backward.default)
def _tanh_backward(context: Context, node: fx.Node, g: Value, y: Value) -> Value:
    of = _Arithmetic(context, y.shape)
    return of.product(g, of("Sub", 1.0, of.product(y, y)))
