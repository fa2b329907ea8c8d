"""Arithmetic of an ONNX graph."""

from collections.abc import Mapping
from math import prod

import onnx

from pocketune.compiler.passes.schedule import tensor_shapes


def graph_flops(model: onnx.ModelProto, sizes: Mapping[str, int]) -> int:
    """Floating point operations of one run: 2 for each multiply-add, 1 for each other element.

    `sizes` gives the numbers for open dimensions.
    """
    shapes = tensor_shapes(model, sizes)
    return sum(_flops(node, shapes) for node in model.graph.node)


def _flops(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    output = prod(shapes[node.output[0]])
    match node.op_type:
        case "Conv":
            return 2 * output * prod(shapes[node.input[1]][1:])
        case "ConvTranspose":
            return 2 * prod(shapes[node.input[0]]) * prod(shapes[node.input[1]][1:])
        case "Gemm":
            rows = _attribute(node, "transA")
            return 2 * output * shapes[node.input[0]][0 if rows else 1]
        case "MatMul":
            return 2 * output * shapes[node.input[0]][-1]
        case "Reshape" | "Transpose" | "Slice" | "Pad" | "Concat" | "Identity" | "Shape":
            return 0
        case "ReduceSum" | "ReduceMean":
            return prod(shapes[node.input[0]])
        case _:
            return output


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((a.i for a in node.attribute if a.name == name), 0)
