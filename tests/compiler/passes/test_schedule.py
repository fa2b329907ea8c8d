"""Bytes of live tensors, and orders of nodes that need fewer."""

import itertools

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from pocketune.compiler.builder import FLOAT, OPSET
from pocketune.compiler.graphs import build_graphs
from pocketune.compiler.passes.arena import arena_bytes
from pocketune.compiler.passes.liveness import Liveness, fused
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes, tensor_shapes
from pocketune.compiler.settings import CompileSettings
from pocketune.device.engine.session import open_session
from pocketune.methods import adapt, create_method

from ..networks import BATCH, CLASSES, SIZE, TASK, tiny

SIZES = {"N": BATCH, "classes": CLASSES}


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list], outputs: dict[str, list]
) -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([-1]), "flat")
    infos = [
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in values.items()]
        for values in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "test", *infos, [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


def chain() -> onnx.ModelProto:
    """x (100) -> a (100) -> view -> mean of it; the output is one number more than b (100)."""
    nodes = [
        node("Relu", "x", "a"),  # live: a, 400 bytes
        node("Reshape", "a flat", "view"),  # the same memory
        node("Neg", "x", "b"),  # a, b
        node("ReduceMean", "view", "m", keepdims=1),  # a, b and 4 bytes; a ends here
        node("Add", "b m", "y"),  # b, m, y
    ]
    return model_of(nodes, {"x": [100]}, {"y": [100]})


def test_a_timeline_computed_by_hand() -> None:
    model = chain()
    liveness = Liveness.of(model, {})
    assert liveness.timeline(model.graph.node) == [400, 400, 800, 804, 804]
    assert liveness.peak(model.graph.node) == 804


def test_only_what_lies_between_integers_is_computed_with_them() -> None:
    """An operator on a tensor that was never quantized makes a float tensor, quantized or not."""
    zero = numpy_helper.from_array(np.array(0, np.uint8), "zero")
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    nodes = [
        node("Abs", "x", "a"),  # 400 bytes
        node("QuantizeLinear", "a one zero", "a8"),  # and 100
        node("DequantizeLinear", "a8 one zero", "b"),  # not made: the next operator reads a8
        node("Neg", "b", "c"),  # 100 in place of 400
        node("QuantizeLinear", "c one zero", "c8"),  # the same memory
        node("DequantizeLinear", "c8 one zero", "y"),
    ]
    model = model_of(nodes, {"x": [100]}, {"y": [100]})
    model.graph.initializer.extend([zero, one])
    line = fused(model, {}).timeline(model.graph.node)
    assert line == [400, 500, 100, 200, 100, 500]


def test_the_best_order_of_the_chain() -> None:
    """The mean first, then `a` is gone before `b` comes: b, m and y are what is left."""
    model = chain()
    order_for_memory(model, tensor_bytes(model, {}))
    assert Liveness.of(model, {}).peak(model.graph.node) == 804
    nodes = [
        node("Relu", "x", "a"),
        node("Neg", "x", "b"),
        node("ReduceMean", "a", "m", keepdims=1),
        node("ReduceMean", "b", "n", keepdims=1),
        node("Add", "m n", "y"),
    ]
    model = model_of(nodes, {"x": [100]}, {"y": [1]})
    assert Liveness.of(model, {}).peak(nodes) == 804
    order_for_memory(model, tensor_bytes(model, {}))
    assert Liveness.of(model, {}).peak(model.graph.node) == 408


def test_outputs_stay_to_the_end() -> None:
    nodes = [node("Relu", "x", "y"), node("Neg", "x", "a"), node("Abs", "a", "z")]
    model = model_of(nodes, {"x": [10]}, {"y": [10], "z": [10]})
    assert Liveness.of(model, {}).timeline(nodes) == [40, 80, 120]


def test_open_dimensions_and_types() -> None:
    nodes = [node("Relu", "x", "a"), node("Cast", "a", "y", to=onnx.TensorProto.BOOL)]
    model = model_of(nodes, {"x": ["N", 5]}, {})
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, ["N", 5]))
    assert tensor_shapes(model, {"N": 3})["a"] == (3, 5)
    assert tensor_bytes(model, {"N": 3}) == {"a": 60, "y": 15}


@pytest.fixture(scope="module", params=["full", "bias", "blocks"])
def step(request: pytest.FixtureRequest) -> onnx.ModelProto:
    knobs = {"blocks": 1} if request.param == "blocks" else {}
    network = adapt(tiny(), create_method(request.param, **knobs))
    return build_graphs(network, CompileSettings(BATCH, SIZE, TASK)).step


def test_the_size_of_every_tensor_is_known(step: onnx.ModelProto) -> None:
    known = tensor_bytes(step, SIZES)
    made = {name for n in step.graph.node for name in n.output}
    assert set(known) == made
    assert all(known.values())


def test_the_order_is_one_of_the_graphs_and_no_worse(step: onnx.ModelProto) -> None:
    ordered = onnx.ModelProto()
    ordered.CopyFrom(step)
    arena = order_for_memory(ordered, tensor_bytes(ordered, SIZES))
    traced = Liveness.of(step, SIZES)
    assert arena == arena_bytes(traced, ordered.graph.node) <= arena_bytes(traced, step.graph.node)
    names = [n.name for n in ordered.graph.node]
    assert sorted(names) == sorted(n.name for n in step.graph.node)
    assert len(set(names)) == len(names)
    onnx.checker.check_model(ordered)  # nodes are sorted topologically
    available = {v.name for v in (*ordered.graph.input, *ordered.graph.initializer)}
    for n in ordered.graph.node:
        assert available.issuperset(filter(None, n.input))
        available.update(n.output)


def test_the_order_changes_no_bit(step: onnx.ModelProto) -> None:
    ordered = onnx.ModelProto()
    ordered.CopyFrom(step)
    order_for_memory(ordered, tensor_bytes(ordered, SIZES))
    feeds = random_inputs(step)
    results = []
    for model in (step, ordered):
        session = open_session(model.SerializeToString(), as_written=True)
        results.append(session.run([o.name for o in step.graph.output], feeds))
    for ours, theirs in itertools.zip_longest(*results):
        np.testing.assert_array_equal(ours, theirs)


def random_inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [SIZES[d.dim_param] if d.dim_param else d.dim_value for d in dims]
        match value.type.tensor_type.elem_type:
            case onnx.TensorProto.FLOAT:
                feeds[value.name] = rng.random(shape, dtype=np.float32)
            case onnx.TensorProto.INT64:
                feeds[value.name] = rng.integers(0, CLASSES, shape)
            case _:
                feeds[value.name] = rng.integers(0, 256, shape, dtype=np.uint8)
    return feeds


def test_memory_is_less_for_a_method_that_keeps_less() -> None:
    torch.manual_seed(0)
    arenas = {}
    for method in ("full", "bias"):
        network = adapt(tiny(channels=16), create_method(method))
        graphs = build_graphs(network, CompileSettings(8, 32, TASK))
        size = tensor_bytes(graphs.step, {"N": 8, "classes": CLASSES})
        arenas[method] = order_for_memory(graphs.step, size)
    assert arenas["bias"] < arenas["full"]
