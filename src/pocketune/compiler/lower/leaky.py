"""ReLUs that let a share of negative values through, fixed or trained, and their derivatives."""

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


@lowers(aten.leaky_relu.default, aten.leaky_relu_.default)
def _leaky_relu(context: Context, node: fx.Node, x: Value, slope: float = 0.01) -> Value:
    return elementwise(context, "LeakyRelu", [x], x.shape, alpha=float(slope))


@lowers(aten.leaky_relu_backward.default)
def _leaky_relu_backward(
    context: Context, node: fx.Node, g: Value, x: Value, slope: float, is_result: bool
) -> Value:
    """Of the result as of the input: both are positive where one is."""
    return _bent(context, x, float(slope), g)


@lowers(aten._prelu_kernel.default)
def _prelu(context: Context, node: fx.Node, x: Value, slope: Value) -> Value:
    return _bent(context, x, slope, x)


@lowers(aten._prelu_kernel_backward.default)
def _prelu_backward(
    context: Context, node: fx.Node, g: Value, x: Value, slope: Value
) -> tuple[Value, Value]:
    low = elementwise(context, "Min", [x, 0.0], x.shape)
    by_slope = elementwise(context, "Mul", [g, low], x.shape)
    return _bent(context, x, slope, g), by_slope


def _bent(context: Context, x: Value, below: Value | float, factor: Value) -> Value:
    """`factor` where x is positive, and times `below` elsewhere."""
    mask = elementwise(context, "Greater", [x, 0.0], x.shape)
    slope = elementwise(context, "Where", [mask, 1.0, below], x.shape)
    return elementwise(context, "Mul", [factor, slope], x.shape)
