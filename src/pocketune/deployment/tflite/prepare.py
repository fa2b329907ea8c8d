"""An exported model as TensorFlow Lite computes it best, still in ONNX."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import onnx
from onnx import helper, numpy_helper, shape_inference

from pocketune.deployment.plain import plain_model
from pocketune.deployment.tflite.patterns import join_gelu, join_hard_swish
from pocketune.deployment.tflite.values import arrays_of, readers_of, replace_nodes

CHANNELS = 3
_STEM = ("Reshape", "Cast", "Mul", "Add", "Reshape", "Transpose")


def prepared_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same function of one image, normalized by channels, with an operator an activation.

    Constants are folded and norms are in the convolutions, as in `plain_model`; so are shapes,
    which are constant for one image. The maps between the frozen and the trained part are no longer
    flattened and put side by side.
    """
    model = copy.deepcopy(model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    model.graph.ClearField("value_info")  # it may be of any number of images
    model = plain_model(model, integers=True)
    _normalize_by_channels(model)
    join_hard_swish(model)
    join_gelu(model)
    _join_parts(model)
    return model


def _normalize_by_channels(model: onnx.ModelProto) -> None:
    """Replace a normalization of image rows, whose constants repeat along them, in place."""
    graph = model.graph
    readers, arrays = readers_of(graph), arrays_of(graph)
    images = graph.input[0].name
    chain: list[onnx.NodeProto] = []
    name = images
    for kind in _STEM:
        if [node.op_type for node in readers.get(name, [])] != [kind]:
            return
        chain.append(readers[name][0])
        name = chain[-1].output[0]
    shift_and_scale = {}
    for node in chain[2:4]:
        constant = next((arrays[n] for n in node.input if n in arrays), None)
        if constant is None or constant.size % CHANNELS:
            return
        rows = constant.reshape(-1, CHANNELS)
        if (rows != rows[0]).any():
            return
        shift_and_scale[node.op_type] = rows[0].reshape(1, CHANNELS, 1, 1)
    made = [
        helper.make_node("Transpose", [images], ["images/channels"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["images/channels"], ["images/float"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", ["images/float", "images/scale"], ["images/scaled"]),
        helper.make_node("Add", ["images/scaled", "images/shift"], [name]),
    ]
    for node in made:
        node.name = f"images/{node.op_type}"
    graph.initializer.extend(
        numpy_helper.from_array(shift_and_scale[kind], f"images/{what}")
        for kind, what in (("Mul", "scale"), ("Add", "shift"))
    )
    replace_nodes(graph, chain, made)


def _join_parts(model: onnx.ModelProto) -> None:
    """Let the trained part read the maps of the frozen one as they are, in place.

    If a kit's frozen part gives several maps, its features are all of them in a row.
    """
    graph = model.graph
    readers, makers = readers_of(graph), {n: node for node in graph.node for n in node.output}
    known = shape_inference.infer_shapes(model).graph.value_info
    shapes = {info.name: info.type.tensor_type.shape for info in known}
    for split in [node for node in graph.node if node.op_type == "Split"]:
        row = makers.get(split.input[0])
        if row is None or row.op_type != "Concat" or readers[split.input[0]] != [split]:
            continue
        flat = [makers[name] for name in row.input if name in makers]
        whole = [node for name in split.output for node in readers.get(name, [])]
        if not len(flat) == len(whole) == len(split.output):
            continue
        pairs = list(zip(flat, whole, strict=True))
        if all(_undoes(second, first, shapes) for first, second in pairs):
            names = {second.output[0]: first.input[0] for first, second in pairs}
            for node in graph.node:
                node.input[:] = [names.get(name, name) for name in node.input]
            unread = [first for first in flat if readers[first.output[0]] == [row]]
            for node in (*unread, row, split, *whole):
                graph.node.remove(node)


def _undoes(
    second: onnx.NodeProto, first: onnx.NodeProto, shapes: Mapping[str, onnx.TensorShapeProto]
) -> bool:
    """Whether two nodes reshape a value, and what they make of it has the shape of the value."""
    before, after = shapes.get(first.input[0]), shapes.get(second.output[0])
    return first.op_type == second.op_type == "Reshape" and before is not None and before == after
