"""Shapes, bytes and arithmetic of the tensors of an ONNX graph."""

from collections.abc import Mapping
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from pocketune.errors import PocketuneError


def tensor_shapes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor; `sizes` gives the numbers for open dimensions."""
    return _shapes(_inferred(model, sizes))


def tensor_bytes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, int]:
    """Bytes of every tensor that a run allocates."""
    graph = _inferred(model, sizes)
    shapes = _shapes(graph)
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.output, *graph.value_info)}
    return {
        name: prod(shapes[name]) * _item_bytes(types[name])
        for node in graph.node
        for name in node.output
        if name in types
    }


_MOST = "pocketune.most_elements"


def limit_elements(node: onnx.NodeProto, most: int) -> None:
    """Note the most elements that a `Compress` selects: shape inference cannot know them.

    The note is in the node's metadata, which a runtime does not read.
    """
    node.metadata_props.append(onnx.StringStringEntryProto(key=_MOST, value=str(most)))


def most_elements(node: onnx.NodeProto) -> int | None:
    """What `limit_elements` has noted; None for other nodes."""
    return next((int(entry.value) for entry in node.metadata_props if entry.key == _MOST), None)


@cache
def _item_bytes(kind: int) -> int:
    return int(np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize)


def _inferred(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.GraphProto:
    """The graph with the shapes and types of its tensors, and without the data of its weights."""
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = model.graph
    bare.graph.name = graph.name
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    bare.graph.output.extend(graph.output)
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.INT64:  # shapes, which inference reads
            bare.graph.initializer.append(tensor)
        else:
            bare.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    for node in graph.node:
        if (most := most_elements(node)) is not None:
            bare.graph.value_info.append(
                helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, [most])
            )
    for value in (*bare.graph.input, *bare.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                number = sizes[dim.dim_param]
                dim.Clear()
                dim.dim_value = number
    return shape_inference.infer_shapes(bare, data_prop=True).graph


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    shapes = {t.name: tuple(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        shapes[value.name] = tuple([d.dim_value for d in value.type.tensor_type.shape.dim])
    for node in graph.node:
        if node.op_type == "OneHot":  # inference gives up if a node computes the depth
            shapes[node.output[0]] = _one_hot_shape(node, graph, shapes)
    for node in graph.node:
        for output in filter(None, node.output):
            if output not in shapes:
                raise _not_known(node, output)
    return shapes


def _not_known(node: onnx.NodeProto, output: str) -> PocketuneError:
    return PocketuneError(
        f"the step cannot be compiled: the size of what {node.op_type} gives ({output}) is not "
        "known"
    )


def _one_hot_shape(
    node: onnx.NodeProto, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The indices' shape with a new axis, whose size is a constant or from a `Shape` node."""
    indices, depth = shapes.get(node.input[0]), _depth(node.input[1], graph, shapes)
    if indices is None or depth is None:
        raise _not_known(node, node.output[0])
    axis = attribute(node, "axis", default=-1)
    place = axis if axis >= 0 else axis + len(indices) + 1
    return (*indices[:place], depth, *indices[place:])


def _depth(name: str, graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """None if it is that of a tensor whose shape is not known."""
    for constant in graph.initializer:
        if constant.name == name:
            return int(numpy_helper.to_array(constant).item())
    made = {node.output[0]: node for node in graph.node}
    node = made[name]
    if node.op_type == "Squeeze":  # of one number, to a scalar
        node = made[node.input[0]]
    if node.op_type != "Shape":
        raise PocketuneError(f"the depth {name} of a OneHot must be a constant or a Shape")
    shape = shapes.get(node.input[0])
    return None if shape is None else shape[attribute(node, "start")]


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
