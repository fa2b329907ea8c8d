"""Weights in 8 bits become products of the same value."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pocketune.device.use.dequantize import dequantize_as_products

RNG = np.random.default_rng(0)


def model(shape: tuple[int, ...], axis: int | None, **others: np.ndarray) -> onnx.ModelProto:
    """A sum of an input and a dequantized weight of this shape."""
    scales = (1,) if axis is None else (shape[axis],)
    arrays = {
        "whole": RNG.integers(-127, 128, shape, dtype=np.int8),
        "scale": RNG.uniform(0.01, 0.1, scales)
        .astype(np.float32)
        .reshape(() if axis is None else -1),
        **others,
    }
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("DequantizeLinear", list(arrays), ["weight"], name="w", **attributes),
        helper.make_node("Add", ["x", "weight"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    tensors = [numpy_helper.from_array(value, name) for name, value in arrays.items()]
    graph = helper.make_graph(nodes, "weights", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4, 3), 0), ((4, 3), 1), ((4, 3, 2, 2), 0), ((4, 3, 2, 2), 1), ((4, 3), None), ((5,), 0)],
)
def test_the_same_value(shape: tuple[int, ...], axis: int | None) -> None:
    before = model(shape, axis)
    after = onnx.ModelProto.FromString(before.SerializeToString())
    dequantize_as_products(after.graph)
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node] == ["Cast", "Mul", "Add"]
    x = {"x": RNG.normal(size=shape).astype(np.float32)}
    expected, found = (ReferenceEvaluator(each).run(None, x)[0] for each in (before, after))
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_what_has_an_offset_stays(kind: type[np.integer]) -> None:
    whole = RNG.integers(0, 127, (4, 3)).astype(kind)
    graph = model((4, 3), 0, whole=whole, offset=np.zeros(4, kind)).graph
    before = graph.SerializeToString()
    dequantize_as_products(graph)
    assert graph.SerializeToString() == before


def test_dequantized_maps_stay() -> None:
    graph = model((4, 3), 0).graph
    del graph.initializer[0]
    graph.input.append(helper.make_tensor_value_info("whole", TensorProto.INT8, (4, 3)))
    dequantize_as_products(graph)
    assert [node.op_type for node in graph.node] == ["DequantizeLinear", "Add"]
