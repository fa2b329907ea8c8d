"""Activations that a file rounds to 8 bits, as the numbers that they stand for.

A quantized file rounds a tensor by QuantizeLinear and DequantizeLinear, one after the other. A
network that is trained has no use for that, so both are left out. Quantizing also clips: where the
smallest code stands for 0, tools leave out the ReLU or ReLU6 before it, which comes back here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from pocketune.onnx_import.values import Array

_LINEAR = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "BatchNormalization"}
"""Operators that an activation follows."""
_SIX, _NEAR = 6.0, 0.02
"""A largest value of about six is that of a ReLU6."""


class _Range(NamedTuple):
    """The numbers of the smallest and of the largest code."""

    low: float
    high: float


def without_rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the rounding of what depends on its input; the model is changed.

    Weights that are stored in 8 bits stay as they are. What is quantized and not dequantized again,
    as by operators on integers, stays too.
    """
    graph = model.graph
    constants = _constants(graph)
    made = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    renamed: dict[str, str] = {}
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        back = readers.get(node.output[0], []) if node.op_type == "QuantizeLinear" else []
        pair = bool(back) and all(each.op_type == "DequantizeLinear" for each in back)
        if node.output[0] in renamed:  # a DequantizeLinear whose rounding is gone
            continue
        if not pair or node.input[0] in constants:
            kept.append(node)
            continue
        source = node.input[0]
        clip = _clip(node, made.get(source), constants, graph)
        if clip is not None:
            kept.append(clip)
            source = clip.output[0]
        renamed.update({each.output[0]: source for each in back})
    del graph.node[:]
    graph.node.extend(kept)
    _rename(graph, renamed)
    return model


def _constants(graph: onnx.GraphProto) -> dict[str, Array]:
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                found[node.output[0]] = numpy_helper.to_array(attribute.t)
    return found


def _clip(
    quantize: onnx.NodeProto,
    before: onnx.NodeProto | None,
    constants: Mapping[str, Array],
    graph: onnx.GraphProto,
) -> onnx.NodeProto | None:
    """The activation that the range of the codes stands for; None without any."""
    span = _range(quantize, constants)
    if span is None or span.low or before is None or before.op_type not in _LINEAR:
        return None
    output = f"{quantize.output[0]}/clipped"
    if abs(span.high - _SIX) > _NEAR * _SIX:
        return helper.make_node("Relu", [quantize.input[0]], [output], name=quantize.name)
    bounds = [f"{output}/low", f"{output}/high"]
    for name, value in zip(bounds, (0.0, _SIX), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return helper.make_node("Clip", [quantize.input[0], *bounds], [output], name=quantize.name)


def _range(quantize: onnx.NodeProto, constants: Mapping[str, Array]) -> _Range | None:
    """None for a scale for each channel, and for codes of a type without zero points."""
    scale = constants.get(quantize.input[1])
    zero = np.zeros((), np.uint8)
    if len(quantize.input) > 2 and quantize.input[2]:
        zero = constants.get(quantize.input[2], np.zeros((), np.float32))
    if scale is None or scale.size != 1 or zero.dtype.kind not in "iu":
        return None
    codes, step = np.iinfo(zero.dtype), float(scale.reshape(()))
    return _Range(step * (codes.min - int(zero)), step * (codes.max - int(zero)))


def _rename(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    """Let every reader of a name read another one; a name may lead to a name that leads on."""

    def last(name: str) -> str:
        while name in renamed:
            name = renamed[name]
        return name

    for node in graph.node:
        node.input[:] = [last(name) for name in node.input]
    for output in graph.output:
        output.name = last(output.name)
