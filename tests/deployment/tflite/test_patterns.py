"""Activations of several nodes become one operator each, however they are written."""

import numpy as np
import onnx
import pytest
from onnx import helper

from pocketune.deployment.tflite.patterns import join_gelu

from .graphs import model_of, random_images, run_onnx

node = helper.make_node
ROOT, HALF, ONE = np.float32(2**0.5), np.float32(0.5), np.float32(1)
DIVIDED = node("Div", ["x", "root"], ["ratio"])
SHIFTED = [node("Erf", ["ratio"], ["erf"]), node("Add", ["erf", "one"], ["both"])]
HALVED = node("Mul", ["half", "x"], ["halved"])
WRITTEN = {
    "the half last": [
        DIVIDED,
        *SHIFTED,
        node("Mul", ["x", "both"], ["y"]),
        node("Mul", ["y", "half"], ["gelu"]),
    ],
    "the half first": [DIVIDED, *SHIFTED, HALVED, node("Mul", ["halved", "both"], ["gelu"])],
    "the half of the sum": [
        node("Mul", ["inverse", "x"], ["ratio"]),
        *SHIFTED,
        node("Mul", ["both", "half"], ["y"]),
        node("Mul", ["y", "x"], ["gelu"]),
    ],
}


def model(nodes: list[onnx.NodeProto], root: np.float32 = ROOT) -> onnx.ModelProto:
    constants = {"root": root, "inverse": 1 / root, "half": HALF, "one": ONE}
    used = {name for each in nodes for name in each.input}
    return model_of(
        [*nodes, node("Neg", ["gelu"], ["logits"])],
        (1, 3, 8, 8),
        **{name: np.array(value) for name, value in constants.items() if name in used},
    )


@pytest.mark.parametrize("how", WRITTEN)
def test_gelu(how: str) -> None:
    given, images = model(WRITTEN[how]), random_images()
    given.opset_import[0].version = 19
    joined = onnx.ModelProto.FromString(given.SerializeToString())
    join_gelu(joined)
    onnx.checker.check_model(joined, full_check=True)
    assert [each.op_type for each in joined.graph.node[4:]] == ["Gelu", "Neg"]
    np.testing.assert_allclose(run_onnx(joined, images), run_onnx(given, images), atol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        [DIVIDED, *SHIFTED, node("Mul", ["x", "both"], ["gelu"])],
        [DIVIDED, *SHIFTED, HALVED, node("Mul", ["halved", "erf"], ["gelu"])],
        [DIVIDED, *SHIFTED, HALVED, node("Mul", ["halved", "halved"], ["gelu"])],
        [
            node("Add", ["x", "root"], ["ratio"]),
            *SHIFTED,
            HALVED,
            node("Mul", ["halved", "both"], ["gelu"]),
        ],
    ],
    ids=["no half", "not shifted", "erf unread", "not scaled"],
)
def test_what_is_no_gelu_keeps_its_nodes(nodes: list[onnx.NodeProto]) -> None:
    given = model(nodes)
    join_gelu(given)
    assert "Gelu" not in {each.op_type for each in given.graph.node}


def test_another_root_is_not_that_of_gelu() -> None:
    given = model(WRITTEN["the half last"], np.float32(1.5))
    join_gelu(given)
    assert "Erf" in {each.op_type for each in given.graph.node}
