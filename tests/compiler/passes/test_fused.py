"""Clips and transposes that other operators do themselves: which ones, and what they compute."""

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.blocked import block_depthwise
from pocketune.device.engine.session import open_session

SHAPE = (2, 3, 5, 5)


def model(*clip: object, again: bool = False, bias: bool = True) -> onnx.ModelProto:
    """A convolution and a clip; the convolution is an output too, or read `again`."""
    b = GraphBuilder()
    x, w = b.input("x", FLOAT, SHAPE), b.input("w", FLOAT, (4, 3, 3, 3))
    biases = [b.input("b", FLOAT, (4,))] if bias else []
    made = b.add("Conv", x, w, *biases, strides=[2, 2], pads=[1, 1, 1, 1])
    operator, *limits = clip
    y = b.add(str(operator), made, *(b.constant(limit) for limit in limits))
    if again:
        b.emit(made, "made", FLOAT, (2, 4, 3, 3))
    b.emit(y, "y", FLOAT, (2, 4, 3, 3))
    return b.model("test")


def run(source: onnx.ModelProto) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.normal(size=[d.dim_value for d in value.type.tensor_type.shape.dim])
        for value in source.graph.input
    }
    session = open_session(source.SerializeToString(), as_written=True)
    return session.run(None, {name: each.astype(np.float32) for name, each in feeds.items()})


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("clip", [("Relu",), ("Clip", 0.0, 0.5), ("Clip", -0.25, 6.0)])
def test_computes_the_same_in_one_node(clip: tuple[object, ...], bias: bool) -> None:
    plain = model(*clip, bias=bias)
    fused = block_depthwise(plain)
    assert fused is not None
    assert [node.op_type for node in fused.graph.node] == ["FusedConv"]
    for found, expected in zip(run(fused), run(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "plain",
    [model("Relu", again=True), model("HardSigmoid"), model("Clip", 0.0), model("Clip")],
    ids=["read again", "another function", "no upper limit", "no limits"],
)
def test_others_stay(plain: onnx.ModelProto) -> None:
    assert block_depthwise(plain) is None


@pytest.mark.parametrize("again", [False, True])
def test_products_read_their_second_operand_transposed(again: bool) -> None:
    """The transposed operand may be read `again`."""
    b = GraphBuilder()
    x, y = b.input("x", FLOAT, (2, 3, 5)), b.input("y", FLOAT, (2, 4, 5))
    turned = b.add("Transpose", y, perm=[0, 2, 1])
    b.emit(b.add("MatMul", x, turned), "made", FLOAT, (2, 3, 4))
    if again:
        b.emit(b.add("Neg", turned), "turned", FLOAT, (2, 5, 4))
    plain = b.model("test")
    fused = block_depthwise(plain)
    assert fused is not None
    kept = ["Transpose", "FusedMatMul", "Neg"] if again else ["FusedMatMul"]
    assert [node.op_type for node in fused.graph.node if node.op_type != "Identity"] == kept
    for found, expected in zip(run(fused), run(plain), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_products_of_other_operands_stay() -> None:
    """The first one, constants, and those in which other axes change places."""
    b = GraphBuilder()
    x, y = b.input("x", FLOAT, (2, 3, 5)), b.input("y", FLOAT, (5, 2, 4))
    first = b.add("Transpose", x, perm=[0, 2, 1])
    b.emit(
        b.add("MatMul", first, b.constant(np.ones((3, 4), np.float32))), "first", FLOAT, (2, 5, 4)
    )
    constant = b.add("Transpose", b.constant(np.ones((4, 5), np.float32)), perm=[1, 0])
    b.emit(b.add("MatMul", x, constant), "second", FLOAT, (2, 3, 4))
    b.emit(b.add("MatMul", x, b.add("Transpose", y, perm=[1, 0, 2])), "third", FLOAT, (2, 3, 4))
    vector = b.add("Transpose", b.input("v", FLOAT, (5,)), perm=[0])
    b.emit(b.add("MatMul", x, vector), "fourth", FLOAT, (2, 3))
    assert block_depthwise(b.model("test")) is None
