"""Graphs with the inputs and outputs of a kit's, for kits that an engine of a test trains."""

import numpy as np
import onnx
from onnx import helper

from pocketune.kit.graphs import signature
from pocketune.kit.manifest import Manifest


def hollow_graph(manifest: Manifest, name: str) -> bytes:
    """A graph that computes nothing, in place of the graph of this name."""
    expected = signature(manifest, name)
    inputs = [_value(key, *spec) for key, spec in expected.inputs.items()]
    outputs = [_value(key, *spec) for key, spec in expected.outputs.items()]
    graph = helper.make_graph([], name, inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def _value(name: str, kind: str | None, shape: tuple[int | None, ...]) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind or "int64"))
    return helper.make_tensor_value_info(name, element, shape)
