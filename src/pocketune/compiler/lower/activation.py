"""ReLU, ReLU6, h-swish, h-sigmoid, SiLU and their derivatives."""

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten


@lowers(aten.relu.default, aten.relu_.default)
def _relu(context: Context, node: fx.Node, x: Value) -> Value:
    return elementwise(context, "Relu", [x], x.shape)


@lowers(aten.hardtanh.default, aten.hardtanh_.default)
def _hardtanh(context: Context, node: fx.Node, x: Value, low: float = -1, high: float = 1) -> Value:
    return elementwise(context, "Clip", [x, low, high], x.shape)


@lowers(aten.threshold_backward.default)
def _relu_backward(context: Context, node: fx.Node, g: Value, y: Value, low: float) -> Value:
    mask = elementwise(context, "Greater", [y, low], y.shape)
    return elementwise(context, "Where", [mask, g, 0.0], y.shape)


@lowers(aten.hardtanh_backward.default)
def _hardtanh_backward(
    context: Context, node: fx.Node, g: Value, x: Value, low: float, high: float
) -> Value:
    # The output says the same as the input, and the next convolution keeps it anyway.
    y = _output_of(context, node.args[1], aten.hardtanh.default, aten.hardtanh_.default) or x
    inside = [
        elementwise(context, "Greater", [y, low], y.shape),
        elementwise(context, "Less", [y, high], y.shape),
    ]
    mask = elementwise(context, "And", inside, y.shape)
    return elementwise(context, "Where", [mask, g, 0.0], y.shape)


def _output_of(context: Context, argument: object, *targets: object) -> Value | None:
    assert isinstance(argument, fx.Node)
    users = [user for user in argument.users if user.target in targets]
    return context.values[users[0]] if users else None


@lowers(aten.hardswish.default, aten.hardswish_.default)
def _hardswish(context: Context, node: fx.Node, x: Value) -> Value:
    gate = _hard_gate(context, x)
    return elementwise(context, "Mul", [x, gate], x.shape)


@lowers(aten.hardswish_backward.default)
def _hardswish_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    slope = elementwise(context, "Mul", [x, 1 / 3], x.shape)
    slope = elementwise(context, "Add", [slope, 0.5], x.shape)
    above = elementwise(context, "Greater", [x, 3.0], x.shape)
    below = elementwise(context, "Less", [x, -3.0], x.shape)
    slope = elementwise(context, "Where", [above, 1.0, slope], x.shape)
    slope = elementwise(context, "Where", [below, 0.0, slope], x.shape)
    return elementwise(context, "Mul", [g, slope], x.shape)


@lowers(aten.hardsigmoid.default, aten.hardsigmoid_.default)
def _hardsigmoid(context: Context, node: fx.Node, x: Value) -> Value:
    return _hard_gate(context, x)


@lowers(aten.hardsigmoid_backward.default)
def _hardsigmoid_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    inside = [
        elementwise(context, "Greater", [x, -3.0], x.shape),
        elementwise(context, "Less", [x, 3.0], x.shape),
    ]
    mask = elementwise(context, "And", inside, x.shape)
    slope = elementwise(context, "Mul", [g, 1 / 6], x.shape)
    return elementwise(context, "Where", [mask, slope, 0.0], x.shape)


def _hard_gate(context: Context, x: Value) -> Value:
    layout = {"rows": context.rows(x)} if context.in_rows(x) else {"plain": context.plain(x)}
    ((name, tensor),) = layout.items()
    gate = context.builder.add("HardSigmoid", tensor, alpha=1 / 6, beta=0.5)
    return Value(x.shape, **{name: gate})


@lowers(aten.silu.default, aten.silu_.default)
def _silu(context: Context, node: fx.Node, x: Value) -> Value:
    gate = elementwise(context, "Sigmoid", [x], x.shape)
    return elementwise(context, "Mul", [x, gate], x.shape)


@lowers(aten.silu_backward.default)
def _silu_backward(context: Context, node: fx.Node, g: Value, x: Value) -> Value:
    gate = elementwise(context, "Sigmoid", [x], x.shape)
    closed = elementwise(context, "Sub", [1.0, gate], x.shape)
    slope = elementwise(context, "Mul", [x, closed], x.shape)
    slope = elementwise(context, "Add", [slope, 1.0], x.shape)
    slope = elementwise(context, "Mul", [gate, slope], x.shape)
    return elementwise(context, "Mul", [g, slope], x.shape)


@lowers(aten.sigmoid_backward.default)
def _sigmoid_backward(context: Context, node: fx.Node, g: Value, y: Value) -> Value:
    closed = elementwise(context, "Sub", [1.0, y], y.shape)
    slope = elementwise(context, "Mul", [y, closed], y.shape)
    return elementwise(context, "Mul", [g, slope], y.shape)
