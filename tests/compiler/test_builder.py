"""The graph builder."""

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, OPSET, GraphBuilder, live_nodes
from pocketune.device.engine.session import open_session


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    session = open_session(model.SerializeToString(), as_written=True)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.fixture
def builder() -> GraphBuilder:
    builder = GraphBuilder()
    builder.input("x", FLOAT, [2])
    return builder


X = np.array([1.0, -2.0], np.float32)


def test_a_graph(builder: GraphBuilder) -> None:
    doubled = builder.add("Mul", "x", builder.constant(2.0))
    builder.emit(builder.add("Relu", doubled), "y", FLOAT, [2])
    model = builder.model("test")
    assert run(model, x=X)["y"].tolist() == [2, 0]
    assert [(o.domain, o.version) for o in model.opset_import] == [("", OPSET)]


def test_names_are_fresh(builder: GraphBuilder) -> None:
    assert builder.fresh("y") == "y"
    assert builder.fresh("y") == "y_1"
    assert builder.fresh("x") == "x_1"  # an input has it


def test_equal_constants_are_one(builder: GraphBuilder) -> None:
    assert builder.constant(2.0) == builder.constant(np.array(2.0, np.float32))
    assert builder.constant(np.array([2])) != builder.constant(np.array([2.0]))
    assert builder.constant(np.zeros((1, 2))) != builder.constant(np.zeros((2, 1)))


def test_doubles_become_floats(builder: GraphBuilder) -> None:
    builder.constant([0.5])
    assert builder.initializers["c"].dtype == np.float32


def test_the_same_operation_is_done_once(builder: GraphBuilder) -> None:
    assert builder.add("Relu", "x") == builder.add("Relu", "x")
    assert builder.add("Cast", "x", to=1) != builder.add("Cast", "x", to=7)
    assert builder.add("Transpose", "x") != builder.add("Transpose", "x")


def test_what_nothing_reads_is_left_out(builder: GraphBuilder) -> None:
    builder.add("Mul", builder.add("Relu", "x"), builder.constant(3.0))
    builder.emit(builder.add("Neg", "x"), "y", FLOAT, [2])
    model = builder.model("test")
    assert [node.op_type for node in model.graph.node] == ["Neg"]
    assert not model.graph.initializer


def test_one_tensor_under_several_names(builder: GraphBuilder) -> None:
    """Two parameters may have one gradient, and a gradient may be read by other nodes."""
    negative = builder.add("Neg", "x")
    other = builder.add("Relu", negative)
    for name in ("a", "b", "c"):
        builder.emit(negative, name, FLOAT, [2])
    builder.emit(other, "d", FLOAT, [2])
    outputs = run(builder.model("test"), x=X)
    for name in ("a", "b", "c"):
        assert outputs[name].tolist() == [-1, 2]
    assert outputs["d"].tolist() == [0, 2]


def test_inputs_and_constants_as_outputs(builder: GraphBuilder) -> None:
    builder.emit("x", "same", FLOAT, [2])
    builder.emit(builder.constant(np.ones(2)), "ones", FLOAT, [2])
    outputs = run(builder.model("test"), x=X)
    assert outputs["same"].tolist() == [1, -2]
    assert outputs["ones"].tolist() == [1, 1]


def test_a_wrong_graph_is_refused(builder: GraphBuilder) -> None:
    builder.emit(builder.add("Relu", "nowhere"), "y", FLOAT, [2])
    with pytest.raises(onnx.checker.ValidationError, match="nowhere"):
        builder.model("test")


def test_live_nodes_keep_their_order(builder: GraphBuilder) -> None:
    first, dead = builder.add("Relu", "x"), builder.add("Neg", "x")
    last = builder.add("Abs", first)
    assert dead not in {n.output[0] for n in live_nodes(builder.nodes, {last})}
    assert [n.op_type for n in live_nodes(builder.nodes, {last})] == ["Relu", "Abs"]
