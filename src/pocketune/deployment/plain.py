"""An exported model as a quantizer reads it best: constants folded, norms in the convolutions."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from pocketune.device.engine.session import start_session


def plain_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same function with constants computed, and scales and shifts in the layers before them.

    ONNX Runtime folds them where a product or a sum follows a convolution, so that differences with
    constants become sums first. Weights in 8 bits become float32.
    """
    folded = _folded(model)
    _sums_of_differences(folded)
    _flatten_kernels(folded)
    result = _folded(folded)
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
