"""Arithmetic of a graph, against counts made by hand."""

import onnx
import pytest
from onnx import helper

from pocketune.compiler.builder import FLOAT, OPSET
from pocketune.compiler.graphs import build_graphs
from pocketune.compiler.passes.sizes import graph_flops
from pocketune.compiler.settings import CompileSettings
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


def test_a_step_is_about_three_predictions() -> None:
    network = adapt(tiny(channels=32), FullFineTune())
    graphs = build_graphs(network, CompileSettings(2, SIZE, TASK))
    sizes = {"N": 2, "classes": CLASSES}
    ratio = graph_flops(graphs.step, sizes) / graph_flops(graphs.predict, sizes)
    assert 2.5 < ratio < 4
