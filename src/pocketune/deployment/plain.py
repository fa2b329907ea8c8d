"""An exported model as a quantizer reads it best: constants folded, norms in the convolutions."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from pocketune.device.engine.session import start_session


def plain_model(model: onnx.ModelProto, *, integers: bool = False) -> onnx.ModelProto:
    """The same function with constants computed, and scales and shifts in the layers before them.

    ONNX Runtime folds them where a product or a sum follows a convolution, so that differences with
    constants become sums first. Weights in 8 bits become float32.

    Args:
        model: A float32 model, of which a part may compute with integers.
        integers: Whether the layers that compute with integers keep their weights in 8 bits.
    """
    stored = _integer_weights(model) if integers else []
    folded = _folded(_with_inputs(model, stored))
    _sums_of_differences(folded)
    _flatten_kernels(folded)
    result = _folded(folded)
    _put_back(result, stored, model)
    _drop_unread_outputs(result)
    _name_nodes(result)
    _name_quantized(result)
    result.producer_name = "pocketune"
    result.graph.ClearField("value_info")
    return result


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """What ONNX Runtime's basic optimizations make of a model: standard operators only."""
    with tempfile.TemporaryDirectory(prefix="pocketune-") as folder:
        file = Path(folder) / "folded.onnx"
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(file)
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        start_session(model.SerializeToString(), options)
        folded = onnx.load(file)
    standard = [opset for opset in folded.opset_import if not opset.domain]
    del folded.opset_import[:]
    folded.opset_import.extend(standard)
    folded.metadata_props.extend(p for p in model.metadata_props if p not in folded.metadata_props)
    return folded


def _integer_weights(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that dequantize constants for a layer that also reads a dequantized map."""
    constants = {tensor.name for tensor in model.graph.initializer}
    made = {n.output[0]: n for n in model.graph.node if n.op_type == "DequantizeLinear"}
    weights = {name: node for name, node in made.items() if node.input[0] in constants}
    maps = made.keys() - weights.keys()
    layers = [node for node in model.graph.node if maps.intersection(node.input)]
    read = {name for node in layers for name in node.input}
    return [node for name, node in weights.items() if name in read]


def _with_inputs(model: onnx.ModelProto, stored: list[onnx.NodeProto]) -> onnx.ModelProto:
    """A copy that takes what these nodes dequantize as inputs, which are not computed."""
    result = copy.deepcopy(model)
    shapes = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for node in stored:
        result.graph.node.remove(node)
        shape = shapes[node.input[0]]
        result.graph.input.append(
            helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, shape)
        )
    return result


def _put_back(
    model: onnx.ModelProto, stored: list[onnx.NodeProto], original: onnx.ModelProto
) -> None:
    """Put nodes that dequantize constants of the original in the place of inputs."""
    graph = model.graph
    made = {node.output[0] for node in stored}
    read = {name for node in stored for name in node.input}
    nodes = [*stored, *graph.node]
    inputs = [value for value in graph.input if value.name not in made]
    del graph.node[:], graph.input[:]
    graph.node.extend(nodes)
    graph.input.extend(inputs)
    kept = {tensor.name for tensor in graph.initializer}
    graph.initializer.extend(t for t in original.graph.initializer if t.name in read - kept)


def _sums_of_differences(model: onnx.ModelProto) -> None:
    """Write x - c as x + (-c) for constants c, in place."""
    graph = model.graph
    values = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Sub" or node.input[1] not in values:
            continue
        array = numpy_helper.to_array(values[node.input[1]])
        if array.dtype != np.float32:
            continue
        name = f"{node.output[0]}/negative"
        graph.initializer.append(numpy_helper.from_array(-array, name))
        node.op_type, node.input[1] = "Add", name


def _flatten_kernels(model: onnx.ModelProto) -> None:
    """Give the kernels (1, in, out) of products in batches two dimensions, in place.

    ONNX Runtime has no integer product of a kernel with three that has a scale for each output.
    """
    graph = model.graph
    values = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        kernel = values.get(node.input[1]) if node.op_type == "MatMul" else None
        if kernel is None or len(kernel.dims) < 3 or set(kernel.dims[:-2]) != {1}:
            continue
        matrix = numpy_helper.to_array(kernel).reshape(kernel.dims[-2:])
        name = f"{kernel.name}/matrix"
        if name not in values:
            values[name] = numpy_helper.from_array(matrix, name)
            graph.initializer.append(values[name])
        node.input[1] = name


def _drop_unread_outputs(model: onnx.ModelProto) -> None:
    """Remove a norm's mean and deviation where only training reads them: they are never float16."""
    graph = model.graph
    read = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}
    for node in graph.node:
        if node.op_type == "LayerNormalization" and not read.intersection(node.output[1:]):
            del node.output[1:]


def _name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a name of its own, which the quantizer selects it by."""
    for place, node in enumerate(model.graph.node):
        node.name = f"{place}/{node.op_type}"


def _name_quantized(model: onnx.ModelProto) -> None:
    """Rename what is quantized already, as the quantizer would give its own values these names."""
    graph = model.graph
    names: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            names |= {name: f"{name}/before" for name in (*node.input[1:], *node.output)}
    for fixed in (*graph.input, *graph.output):
        names.pop(fixed.name, None)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
