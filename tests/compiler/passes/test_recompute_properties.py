"""Recomputing changes no value, keeps what the caller asked for and never touches what varies."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes import recompute
from pocketune.compiler.passes.recompute import recompute_from_parameters
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.device.engine.session import open_session

SIDE = 32  # 4096 bytes: the smallest tensor that is worth a second node
VARYING = frozenset({"images"})


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Up to ten nodes over two parameters and the images."""
    b = GraphBuilder()
    names = [b.input(name, FLOAT, (SIDE, SIDE)) for name in ("images", "v", "w")]
    side = dict.fromkeys(names, SIDE)
    for _ in range(draw(st.integers(1, 10))):
        op = draw(st.sampled_from(["Neg", "Add", "Mul", "ReduceMean"]))
        read = [draw(st.sampled_from(names)) for _ in range(1 + (op in ("Add", "Mul")))]
        names.append(b.add(op, *read, **({"keepdims": 1} if op == "ReduceMean" else {})))
        side[names[-1]] = 1 if op == "ReduceMean" else max(side[name] for name in read)
    for number, name in enumerate(draw(st.lists(st.sampled_from(names[3:]), max_size=2))):
        b.emit(b.add("Abs", name), f"y{number}", FLOAT, (side[name], side[name]))
    b.emit(b.add("Sub", names[-1], names[0]), "last", FLOAT, (SIDE, SIDE))
    return b.model("random")


def values(model: onnx.ModelProto) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.random((SIDE, SIDE), np.float32) for v in model.graph.input}
    results: list[np.ndarray] = open_session(model.SerializeToString(), as_written=True).run(
        None, feeds
    )
    return results


def varies(model: onnx.ModelProto) -> list[bytes]:
    """Nodes that depend on the images, without their names for what they read."""
    moving, found = set(VARYING), []
    for node in model.graph.node:
        if moving.intersection(node.input):
            moving.update(node.output)
            found.append(node.output[0].encode())
    return found


@settings(max_examples=25)
@given(graphs(), st.integers(1, 5))
def test_no_value_changes_and_every_node_is_in_its_place(model: onnx.ModelProto, near: int) -> None:
    expected, moving = values(model), varies(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recompute, "_NEAR", near)
        recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    onnx.checker.check_model(model)  # nodes are sorted topologically, names are unique
    assert varies(model) == moving
    for ours, theirs in zip(values(model), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def twice_read(side: int, between: int = 40) -> onnx.ModelProto:
    """A matrix made of a parameter, read at both ends of a chain."""
    b = GraphBuilder()
    y, w = b.input("images", FLOAT, (side, side)), b.input("w", FLOAT, (side, side))
    made = b.add("Neg", w)
    y = b.add("Add", y, made)
    for _ in range(between):
        y = b.add("Abs", y)
    b.emit(b.add("Add", y, made), "y", FLOAT, (side, side))
    return b.model("twice")


@pytest.mark.parametrize(("side", "copies"), [(31, 1), (32, 2)])
def test_a_tensor_below_4_kib_is_kept(side: int, copies: int) -> None:
    model = twice_read(side)
    recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    assert [n.op_type for n in model.graph.node].count("Neg") == copies


def test_a_copy_has_a_name_of_its_own_whatever_the_parameters_are_called() -> None:
    b = GraphBuilder()
    w = b.input("again_1", FLOAT, (SIDE, SIDE))
    y = b.add("Mul", b.input("images", FLOAT, (SIDE, SIDE)), b.add("Neg", w))
    b.emit(y, "y", FLOAT, (SIDE, SIDE))
    model = b.model("named")
    recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    onnx.checker.check_model(model)


@pytest.mark.parametrize("between", [0, 10, 21, 22, 23, 30])
def test_a_reader_within_24_nodes_shares_the_copy(between: int) -> None:
    model = twice_read(SIDE, between)
    recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    count = [n.op_type for n in model.graph.node].count("Neg")
    assert count == (1 if between + 1 < 24 else 2)


def test_what_nothing_reads_is_not_made() -> None:
    b = GraphBuilder()
    x, w = b.input("images", FLOAT, (SIDE, SIDE)), b.input("w", FLOAT, (SIDE, SIDE))
    b.add("Neg", w)
    b.emit(b.add("Abs", x), "y", FLOAT, (SIDE, SIDE))
    model = b.model("unread")
    recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    assert [n.op_type for n in model.graph.node] == ["Abs"]


def test_a_chain_of_parameters_alone_is_made_again_from_its_start() -> None:
    b = GraphBuilder()
    y, w = b.input("images", FLOAT, (SIDE, SIDE)), b.input("w", FLOAT, (SIDE, SIDE))
    made = b.add("Exp", b.add("Neg", w))
    y = b.add("Add", y, made)
    for _ in range(40):
        y = b.add("Abs", y)
    b.emit(b.add("Add", y, made), "y", FLOAT, (SIDE, SIDE))
    model = b.model("chain")
    recompute_from_parameters(model, tensor_bytes(model, {}), VARYING)
    operators = [n.op_type for n in model.graph.node]
    assert operators == ["Neg", "Exp", "Add", *["Abs"] * 40, "Neg", "Exp", "Add"]
