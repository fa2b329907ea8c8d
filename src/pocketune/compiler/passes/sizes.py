"""Shapes, bytes and arithmetic of the tensors of an ONNX graph."""

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from pocketune.errors import PocketuneError


def tensor_shapes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor; `sizes` gives the numbers for open dimensions."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                number = sizes[dim.dim_param]
                dim.Clear()
                dim.dim_value = number
    inferred = shape_inference.infer_shapes(fixed, data_prop=True)
    shapes = {t.name: tuple(t.dims) for t in inferred.graph.initializer}
    graph = inferred.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        dims = value.type.tensor_type.shape.dim
        shapes[value.name] = tuple(d.dim_value for d in dims)
    for node in graph.node:
        if node.op_type == "OneHot":  # inference gives up if a node computes the depth
            shapes[node.output[0]] = _one_hot_shape(node, graph, shapes)
    return shapes


def _one_hot_shape(
    node: onnx.NodeProto, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The indices' shape with a new axis, whose size is a constant or from a `Shape` node."""
    indices, axis = list(shapes[node.input[0]]), attribute(node, "axis", default=-1)
    place = axis if axis >= 0 else axis + len(indices) + 1
    indices.insert(place, _depth(node.input[1], graph, shapes))
    return tuple(indices)


def _depth(name: str, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    for constant in graph.initializer:
        if constant.name == name:
            return int(numpy_helper.to_array(constant).item())
    node = next(node for node in graph.node if name in node.output)
    if node.op_type != "Shape":
        raise PocketuneError(f"the depth {name} of a OneHot must be a constant or a Shape")
    return shapes[node.input[0]][attribute(node, "start")]


def tensor_bytes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of every tensor that a run allocates."""
    shapes = tensor_shapes(model, sizes)
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    types = {
        v.name: v.type.tensor_type.elem_type
        for v in (*inferred.graph.output, *inferred.graph.value_info)
    }
    return {
        name: prod(shapes[name]) * np.dtype(helper.tensor_dtype_to_np_dtype(types[name])).itemsize
        for node in model.graph.node
        for name in node.output
        if name in types
    }


def graph_flops(model: onnx.ModelProto, sizes: Mapping[str, int]) -> int:
    """Floating point operations of one run: 2 for each multiply-add, 1 for each other element.

    `sizes` gives the sizes of open dimensions.
    """
    shapes = tensor_shapes(model, sizes)
    return sum(node_flops(node, shapes) for node in model.graph.node)


def node_flops(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Floating point operations of one node."""
    output = prod(shapes[node.output[0]])
    match node.op_type:
        case "Conv":
            return 2 * output * prod(shapes[node.input[1]][1:])
        case "ConvTranspose":
            return 2 * prod(shapes[node.input[0]]) * prod(shapes[node.input[1]][1:])
        case "Gemm":
            rows = attribute(node, "transA")
            return 2 * output * shapes[node.input[0]][0 if rows else 1]
        case "MatMul":
            return 2 * output * shapes[node.input[0]][-1]
        case "Reshape" | "Transpose" | "Slice" | "Pad" | "Concat" | "Identity" | "Shape":
            return 0
        case "ReduceSum" | "ReduceMean":
            return prod(shapes[node.input[0]])
        case _:
            return output


def attribute(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    """A whole number among the attributes of a node."""
    return next((a.i for a in node.attribute if a.name == name), default)
