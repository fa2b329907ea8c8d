"""What parameters alone determine is made again where it is read again."""

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.recompute import recompute_from_parameters
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.device.engine.session import open_session

SIDE = 64


def arena(model: onnx.ModelProto) -> int:
    """Of the model in the best order found, which it then has."""
    return order_for_memory(model, tensor_bytes(model, {}))


def chain(layers: int = 4, between: int = 40) -> onnx.ModelProto:
    """y = x W'..., and then once more in the other order, as a backward pass reads filters."""
    b = GraphBuilder()
    y = b.input("images", FLOAT, (1, SIDE))
    weights = [b.input(f"w{i}", FLOAT, (SIDE, SIDE)) for i in range(layers)]
    made = []
    for w in weights:
        centered = b.add("Sub", w, b.add("ReduceMean", w, keepdims=1))
        made.append(b.add("Div", centered, b.constant(2.0)))
        y = b.add("MatMul", y, made[-1])
    for i in range(between):
        y = b.add("Add", y, b.constant(float(i)))
    for matrix in reversed(made):
        y = b.add("MatMul", y, matrix)
    b.emit(y, "y", FLOAT, (1, SIDE))
    return b.model("chain")


def run(model: onnx.ModelProto) -> np.ndarray:
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.normal(size=(1, SIDE)) for v in model.graph.input[:1]}
    feeds |= {v.name: rng.normal(size=(SIDE, SIDE)) for v in model.graph.input[1:]}
    session = open_session(model.SerializeToString(), as_written=True)
    (y,) = session.run(None, {name: value.astype(np.float32) for name, value in feeds.items()})
    return y


def test_results_stay_and_memory_does_not() -> None:
    kept, again = chain(), chain()
    recompute_from_parameters(again, tensor_bytes(again, {}), frozenset({"images"}))
    onnx.checker.check_model(again)
    assert arena(again) < 0.7 * arena(kept)
    assert np.array_equal(run(again), run(kept))


@pytest.mark.parametrize(("between", "copies"), [(40, 2), (0, 1)])
def test_readers_far_apart_have_their_own(between: int, copies: int) -> None:
    model = chain(layers=1, between=between)
    recompute_from_parameters(model, tensor_bytes(model, {}), frozenset({"images"}))
    assert [n.op_type for n in model.graph.node].count("Div") == copies


def test_what_depends_on_the_images_is_computed_once() -> None:
    model = chain()
    inputs = frozenset(v.name for v in model.graph.input)
    recompute_from_parameters(model, tensor_bytes(model, {}), inputs)
    assert [n.SerializeToString() for n in model.graph.node] == [
        n.SerializeToString() for n in chain().graph.node
    ]


def test_an_output_made_from_parameters_stays() -> None:
    b = GraphBuilder()
    w = b.input("w", FLOAT, (SIDE, SIDE))
    b.emit(b.add("Neg", w), "negated", FLOAT, (SIDE, SIDE))
    model = b.model("outputs")
    recompute_from_parameters(model, tensor_bytes(model, {}), frozenset())
    assert [n.op_type for n in model.graph.node] == ["Neg"]


@pytest.mark.parametrize(("side", "copies"), [(SIDE, 2), (8, 1)])
def test_a_distant_copy_serves_readers_near_it_and_small_tensors_have_none(
    side: int, copies: int
) -> None:
    b = GraphBuilder()
    y, w = b.input("images", FLOAT, (1, side)), b.input("w", FLOAT, (side, side))
    halved = b.add("Div", w, b.constant(2.0))
    y = b.add("MatMul", y, halved)
    for i in range(40):
        y = b.add("Add", y, b.constant(float(i)))
    for _ in range(2):
        y = b.add("MatMul", y, halved)
    b.emit(y, "y", FLOAT, (1, side))
    model = b.model("distant")
    recompute_from_parameters(model, tensor_bytes(model, {}), frozenset({"images"}))
    assert [n.op_type for n in model.graph.node].count("Div") == copies
