"""Arithmetic of a graph, against counts made by hand."""

import numpy as np
import onnx
import pytest
from onnx import helper

from pocketune.compiler.builder import FLOAT, INT64, OPSET, GraphBuilder
from pocketune.compiler.graphs import build_graphs
from pocketune.compiler.passes.sizes import graph_flops, tensor_shapes
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.session import open_session
from pocketune.errors import PocketuneError
from pocketune.methods import FullFineTune, adapt

from ..networks import CLASSES, SIZE, TASK, tiny


def flops(op: str, inputs: list[list[int | str]], output: list[int | str], **attributes) -> int:
    names = [f"input{i}" for i in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "test",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info("y", FLOAT, output)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    onnx.checker.check_model(model)
    return graph_flops(model, {"N": 2})


@pytest.mark.parametrize(
    ("op", "inputs", "output", "attributes", "expected"),
    [
        ("Conv", [["N", 4, 8, 8], [6, 4, 3, 3]], ["N", 6, 6, 6], {}, 2 * 2 * 6 * 36 * 4 * 9),
        ("Conv", [[1, 4, 8, 8], [4, 1, 3, 3]], [1, 4, 6, 6], {"group": 4}, 2 * 4 * 36 * 9),
        ("ConvTranspose", [[1, 6, 6, 6], [6, 4, 3, 3]], [1, 4, 8, 8], {}, 2 * 6 * 36 * 4 * 9),
        ("Gemm", [[3, 4], [4, 5]], [3, 5], {}, 2 * 3 * 4 * 5),
        ("Gemm", [[4, 3], [5, 4]], [3, 5], {"transA": 1, "transB": 1}, 2 * 3 * 4 * 5),
        ("MatMul", [[7, 3, 4], [7, 4, 5]], [7, 3, 5], {}, 2 * 7 * 3 * 4 * 5),
        ("Relu", [[3, 4]], [3, 4], {}, 12),
        ("Add", [[3, 4], [4]], [3, 4], {}, 12),
        ("ReduceSum", [[3, 4]], [1, 1], {}, 12),
        ("Transpose", [[3, 4]], [4, 3], {}, 0),
    ],
)
def test_one_node(op: str, inputs, output, attributes, expected: int) -> None:
    assert flops(op, inputs, output, **attributes) == expected


def one_hot(depth: str, axis: int) -> onnx.ModelProto:
    """One-hot vectors of labels (N, 3), whose depth is a constant or counts rows of `scores`."""
    made = GraphBuilder()
    labels = made.input("labels", INT64, ["N", 3])
    scores = made.input("scores", FLOAT, [7, "classes"])
    depths = {
        "constant": lambda: made.constant(np.array([4])),
        "fixed": lambda: made.add("Shape", scores, end=1),
        "open": lambda: made.add("Shape", scores, start=-1),
        "computed": lambda: made.add("Mul", made.add("Shape", scores, end=1), made.constant([2])),
    }
    values = made.constant([0.0, 1.0])
    made.emit(
        made.add("OneHot", labels, depths[depth](), values, axis=axis), "y", FLOAT, [None] * 3
    )
    return made.model("test")


@pytest.mark.parametrize("depth", ["constant", "fixed", "open"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_one_hot_vectors_have_the_shape_that_the_runtime_gives_them(depth: str, axis: int) -> None:
    model = one_hot(depth, axis)
    session = open_session(model.SerializeToString(), as_written=True)
    feeds = {"labels": np.zeros((2, 3), np.int64), "scores": np.zeros((7, CLASSES), np.float32)}
    (made,) = session.run(None, {each.name: feeds[each.name] for each in session.get_inputs()})
    assert tensor_shapes(model, {"N": 2, "classes": CLASSES})["y"] == made.shape


def test_a_depth_that_is_computed_is_refused() -> None:
    with pytest.raises(PocketuneError, match="the depth mul of a OneHot must be a constant"):
        tensor_shapes(one_hot("computed", 1), {"N": 2, "classes": CLASSES})


def test_a_depth_of_a_tensor_of_unknown_shape_is_refused() -> None:
    model = one_hot("open", 1)
    shape = next(node for node in model.graph.node if node.op_type == "Shape")
    shape.input[0] = "unknown"
    model.graph.node.insert(0, onnx.helper.make_node("Unknown", ["scores"], ["unknown"]))
    with pytest.raises(PocketuneError, match=r"the size of what OneHot gives \(y\) is not known"):
        tensor_shapes(model, {"N": 2, "classes": CLASSES})


def test_a_step_is_about_three_predictions() -> None:
    network = adapt(tiny(channels=32), FullFineTune())
    graphs = build_graphs(network, CompileSettings(2, SIZE, TASK))
    sizes = {"N": 2, "classes": CLASSES}
    ratio = graph_flops(graphs.step, sizes) / graph_flops(graphs.predict, sizes)
    assert 2.5 < ratio < 4
