"""Sums, products and reductions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.operators.registry import (
    given,
    keeps_images,
    makes,
    refusal,
    required,
)
from pocketune.onnx_import.parts import Function, WithConstant, tensor_of

_ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Pow": torch.pow,
    "Min": torch.minimum,
    "Max": torch.maximum,
}


@makes(*_ELEMENTWISE)
def _elementwise(node: Node, file: OnnxFile) -> nn.Module:
    function = _ELEMENTWISE[node.kind]
    if len(node.inputs) != 2:
        raise refusal(node, file, "has another number of inputs than two")
    if len(node.data) == 2:
        return Function(node.kind, function)
    first = node.inputs[0] not in node.data
    value = required(node, 0 if first else 1, file)
    if node.kind == "Pow" and not first and value.size == 1:
        return Function(node.kind, partial(torch.pow, exponent=value.item()))
    counts = file.counts(node.output)[-value.ndim :] if value.ndim else ()
    if any(count and side > 1 for count, side in zip(counts, value.shape, strict=True)):
        raise refusal(node, file, "has a constant for each image of a batch")
    return WithConstant(function, tensor_of(value), first=first)


@makes("Sum", "Mean")
def _several(node: Node, file: OnnxFile) -> nn.Module:
    """Of any number of tensors."""
    if len(node.data) != len(node.inputs):
        raise refusal(node, file, "has a constant among its inputs")
    share = 1.0 if node.kind == "Sum" else 1 / len(node.inputs)
    return Function(node.kind, lambda *inputs: sum(inputs[1:], inputs[0]) * share)


_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "ReduceMean": torch.mean,
    "ReduceSum": torch.sum,
    "ReduceMax": torch.amax,
    "ReduceMin": torch.amin,
    "ReduceL1": partial(torch.linalg.vector_norm, ord=1),
    "ReduceL2": torch.linalg.vector_norm,
}


@makes(*_REDUCTIONS)
def _reduce(node: Node, file: OnnxFile) -> nn.Module:
    axes = given(node, "axes", 1, file)
    if not axes and node.attributes.get("noop_with_empty_axes", 0):
        is_norm = node.kind in ("ReduceL1", "ReduceL2")  # of each element
        return Function(node.kind, torch.abs) if is_norm else nn.Identity()
    if not axes:
        raise refusal(node, file, "reduces over the images of a batch")
    keeps_images(node, file, axes)
    keep = bool(node.attributes.get("keepdims", 1))
    return Function(node.kind, partial(_REDUCTIONS[node.kind], dim=axes, keepdim=keep))


@makes("Einsum")
def _einsum(node: Node, file: OnnxFile) -> nn.Module:
    function = partial(torch.einsum, node.attributes["equation"].decode())
    if len(node.data) == len(node.inputs):
        return Function("Einsum", function)
    if len(node.inputs) != 2:
        raise refusal(node, file, "has a constant among more than two inputs")
    first = node.inputs[0] not in node.data
    value = required(node, 0 if first else 1, file)
    return WithConstant(function, tensor_of(value), first=first)
