"""Comparisons and the logic of masks."""

from typing import Any

import torch
from torch import fx

from pocketune.compiler.lower.context import Context, lowers, shape_of
from pocketune.compiler.lower.elementwise import elementwise
from pocketune.compiler.lower.value import Value

aten = torch.ops.aten

_COMPARISONS: dict[Any, str] = {
    aten.gt.Scalar: "Greater",
    aten.gt.Tensor: "Greater",
    aten.ge.Scalar: "GreaterOrEqual",
    aten.ge.Tensor: "GreaterOrEqual",
    aten.lt.Scalar: "Less",
    aten.lt.Tensor: "Less",
    aten.le.Scalar: "LessOrEqual",
    aten.le.Tensor: "LessOrEqual",
    aten.eq.Scalar: "Equal",
    aten.eq.Tensor: "Equal",
    aten.logical_and.default: "And",
    aten.bitwise_and.Tensor: "And",
    aten.logical_or.default: "Or",
    aten.bitwise_or.Tensor: "Or",
    aten.logical_not.default: "Not",
    aten.bitwise_not.default: "Not",
}


@lowers(*_COMPARISONS)
def _compare(context: Context, node: fx.Node, *operands: Value | float) -> Value:
    return elementwise(context, _COMPARISONS[node.target], operands, shape_of(node))


@lowers(aten.where.self)
def _where(context: Context, node: fx.Node, mask: Value, a: Value, b: Value) -> Value:
    return elementwise(context, "Where", [mask, a, b], shape_of(node))
