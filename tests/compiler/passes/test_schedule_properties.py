"""Orders of small random graphs: valid, no worse than before, and measured as a plain count has it.

Every node reads tensors that exist before it, so that the list is a valid order to begin with.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from pocketune.compiler.builder import FLOAT, OPSET
from pocketune.compiler.passes.arena import arena_bytes
from pocketune.compiler.passes.liveness import Liveness, fused
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes

OPERATORS = ("Neg", "Add", "Greater", "Not", "Where", "Reshape", "ReduceSum")
VIEWS = {"Reshape"}


def make(op: str, inputs: Sequence[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], name=output, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto], outputs: dict[str, tuple[int, list[int]]], side: int = 8
) -> onnx.ModelProto:
    """A graph that takes `x` (side, 4)."""
    shape = numpy_helper.from_array(np.array([-1, 4]), "shape")
    graph = helper.make_graph(
        list(nodes),
        "random",
        [helper.make_tensor_value_info("x", FLOAT, [side, 4])],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items()],
        [shape],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


@st.composite
def graphs(draw: st.DrawFn) -> onnx.ModelProto:
    """Up to nine nodes over floats (8, 4) and (8, 1), and masks of them."""
    floats, masks, nodes = ["x"], list[str](), list[onnx.NodeProto]()
    columns = {"x": 4}
    for i in range(draw(st.integers(1, 9))):
        op = draw(st.sampled_from(OPERATORS))
        if op in ("Not", "Where") and not masks:
            op = "Greater"
        one, two = (draw(st.sampled_from(floats)) for _ in range(2))
        mask = draw(st.sampled_from(masks)) if op in ("Not", "Where") else ""
        name = f"{op.lower()}_{i}"
        match op:
            case "Neg":
                nodes.append(make(op, [one], name))
            case "Add" | "Greater":
                nodes.append(make(op, [one, two], name))
            case "Not":
                nodes.append(make(op, [mask], name))
            case "Where":
                nodes.append(make(op, [mask, one, two], name))
            case "Reshape":
                nodes.append(make("Add", [one, "x"], f"{name}_whole"))
                nodes.append(make(op, [f"{name}_whole", "shape"], name))
                columns[f"{name}_whole"] = 4
            case "ReduceSum":
                nodes.append(make(op, [one], name, keepdims=1))
        (masks if op in ("Greater", "Not") else floats).append(name)
        read = [columns[n] for n in nodes[-1].input if n in columns]
        columns[name] = 1 if op == "ReduceSum" else max(read)
    asked = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique_by=id))
    outputs = {}
    for node in asked:
        kind = TensorProto.BOOL if node.op_type in ("Greater", "Not") else FLOAT
        outputs[node.output[0]] = kind, [8, columns[node.output[0]]]
    return model_of(nodes, outputs)


def roots(model: onnx.ModelProto) -> dict[str, str]:
    """The tensor whose memory each one has; outputs have their own."""
    found, outputs = dict[str, str](), {o.name for o in model.graph.output}
    for node in model.graph.node:
        (name,), source = node.output, node.input[0]
        is_view = node.op_type in VIEWS and name not in outputs
        found[name] = found.get(source, source) if is_view else name
    return found


def peak_by_simulation(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> int:
    """Allocate before each node, free after it whatever no later one reads, and look."""
    size = Liveness.of(model, {}).bytes
    root, outputs = roots(model), {o.name for o in model.graph.output}
    live, peak = set[str](), 0
    for i, node in enumerate(nodes):
        live.update(root[name] for name in node.output)
        peak = max(peak, sum(size.get(name, 0) for name in live))
        later = {name for other in nodes[i + 1 :] for name in other.input} | outputs
        live &= {root.get(name, name) for name in later}
    return peak


def lowest_peak(model: onnx.ModelProto) -> int:
    """Of every valid order, by depth-first search over sets of nodes that have run."""
    nodes = list(model.graph.node)
    size = Liveness.of(model, {}).bytes
    root, outputs = roots(model), {o.name for o in model.graph.output}
    producer = {node.output[0]: i for i, node in enumerate(nodes)}
    needs = [{producer[n] for n in node.input if n in producer} for node in nodes]
    kept = {root[name] for name in outputs}

    def live(done: frozenset[int]) -> set[str]:
        """What nodes that have not run yet read of those that have."""
        wanted = {
            root.get(n, n) for i in range(len(nodes)) if i not in done for n in nodes[i].input
        }
        made = {root[nodes[i].output[0]] for i in done}
        return made & (wanted | kept)

    best: dict[frozenset[int], int] = {frozenset(): 0}
    for _ in nodes:
        longer: dict[frozenset[int], int] = {}
        for done, peak in best.items():
            held = live(done)
            for i in set(range(len(nodes))) - done:
                if needs[i] <= done:
                    now = sum(size.get(n, 0) for n in held | {root[nodes[i].output[0]]})
                    after = done | {i}
                    longer[after] = min(longer.get(after, 1 << 60), max(peak, now))
        best = longer
    return best[frozenset(range(len(nodes)))]


def assert_valid(model: onnx.ModelProto) -> None:
    available = {v.name for v in (*model.graph.input, *model.graph.initializer)}
    for node in model.graph.node:
        assert available.issuperset(node.input), f"{node.name} runs before what it reads"
        available.update(node.output)
    assert available.issuperset(o.name for o in model.graph.output)


@settings(max_examples=60)
@given(graphs())
def test_a_timeline_is_that_of_a_plain_simulation(model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    assert Liveness.of(model, {}).peak(nodes) == peak_by_simulation(model, nodes)


@settings(max_examples=60)
@given(graphs())
def test_an_order_is_valid_whole_and_never_worse(model: onnx.ModelProto) -> None:
    liveness = Liveness.of(model, {})
    before = arena_bytes(liveness, model.graph.node)
    names = sorted(node.name for node in model.graph.node)
    arena = order_for_memory(model, tensor_bytes(model, {}))
    assert sorted(node.name for node in model.graph.node) == names
    assert_valid(model)
    assert lowest_peak(model) <= liveness.peak(model.graph.node) <= arena <= before
    assert arena == arena_bytes(liveness, model.graph.node)


@settings(max_examples=20)
@given(graphs())
def test_an_order_that_was_found_is_not_improved_upon_by_a_second_pass(
    model: onnx.ModelProto,
) -> None:
    first = order_for_memory(model, tensor_bytes(model, {}))
    assert order_for_memory(model, tensor_bytes(model, {})) <= first


def test_a_mask_of_the_graph_s_own_input_runs_before_its_reader() -> None:
    nodes = [
        make("Greater", ["x", "x"], "mask"),
        make("Where", ["mask", "x", "x"], "chosen"),
        make("Neg", ["chosen"], "y"),
    ]
    model = model_of(nodes, {"y": (FLOAT, [8, 4])})
    order_for_memory(model, tensor_bytes(model, {}))
    assert [node.name for node in model.graph.node] == ["mask", "chosen", "y"]


def test_a_graph_of_comparisons_alone_keeps_them_all() -> None:
    nodes = [make("Greater", ["x", "x"], "mask"), make("Not", ["mask"], "y")]
    model = model_of(nodes, {"y": (TensorProto.BOOL, [8, 4])})
    order_for_memory(model, tensor_bytes(model, {}))
    assert Liveness.of(model, {}).peak(model.graph.node) == 64
    assert [node.name for node in model.graph.node] == ["mask", "y"]


def test_comparisons_run_early_so_that_a_map_need_not_be_kept() -> None:
    """The mask of `a` is a quarter of it, and `a` itself is not read again."""
    nodes = [
        make("Neg", ["x"], "a"),
        make("Neg", ["a"], "b"),
        make("Neg", ["b"], "c"),
        make("Neg", ["c"], "d"),
        make("Greater", ["a", "x"], "mask"),
        make("Where", ["mask", "d", "x"], "y"),
    ]
    model = model_of(nodes, {"y": (FLOAT, [8, 4])})
    before = Liveness.of(model, {}).peak(nodes)
    map_, mask = 8 * 4 * 4, 8 * 4
    assert before == 3 * map_
    order_for_memory(model, tensor_bytes(model, {}))
    peak = Liveness.of(model, {}).peak(model.graph.node)
    assert peak == 2 * map_ + mask == lowest_peak(model)


def dequantizing(outputs: dict[str, tuple[int, list[int]]]) -> onnx.ModelProto:
    """Two kernels in 8 bits, both brought to float ahead of everything."""
    kernels = [numpy_helper.from_array(np.ones((4, 4), np.int8), f"k{i}") for i in range(2)]
    scale = numpy_helper.from_array(np.float32(0.5), "scale")
    nodes = [
        *(make("DequantizeLinear", [f"k{i}", "scale"], f"w{i}") for i in range(2)),
        make("MatMul", ["x", "w0"], "a"),
        make("MatMul", ["a", "w1"], "y"),
    ]
    model = model_of([], {})
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kernels, scale])
    model.graph.output.extend(helper.make_tensor_value_info(n, *v) for n, v in outputs.items())
    onnx.checker.check_model(model, full_check=True)
    return model


def test_a_kernel_in_8_bits_is_brought_to_float_right_before_its_reader() -> None:
    model = dequantizing({"y": (FLOAT, [8, 4])})
    order_for_memory(model, tensor_bytes(model, {}))
    assert [node.name for node in model.graph.node] == ["w0", "a", "w1", "y"]
    peak = Liveness.of(model, {}).peak(model.graph.node)
    assert peak == 2 * 128 + 64  # a, y and one kernel


def test_a_kernel_that_is_asked_for_in_float_stays_in_the_graph() -> None:
    model = dequantizing({"y": (FLOAT, [8, 4]), "w1": (FLOAT, [4, 4])})
    model.graph.node[3].input[1] = "w0"  # nothing reads it but the caller
    order_for_memory(model, tensor_bytes(model, {}))
    assert_valid(model)


@pytest.mark.parametrize("requantized", [True, False])
def test_what_is_float_between_two_8_bit_maps_is_never_made(requantized: bool) -> None:
    """Four operators of integers; without the last one the product is a float map."""
    scale = numpy_helper.from_array(np.float32(0.1), "scale")
    zero = numpy_helper.from_array(np.uint8(0), "zero")
    nodes = [
        make("QuantizeLinear", ["x", "scale", "zero"], "q"),
        make("DequantizeLinear", ["q", "scale", "zero"], "f"),
        make("Relu", ["f"], "r"),
        make("QuantizeLinear", ["r", "scale", "zero"], "y"),
    ]
    model = model_of([], {})
    kept = nodes if requantized else nodes[:-1]
    model.graph.node.extend(kept)
    model.graph.initializer.extend([scale, zero])
    kind = TensorProto.UINT8 if requantized else FLOAT
    last = kept[-1].output[0]
    model.graph.output.append(helper.make_tensor_value_info(last, kind, [8, 4]))
    onnx.checker.check_model(model, full_check=True)
    elements = 32
    assert fused(model, {}).peak(model.graph.node) == (
        2 * elements if requantized else 2 * 4 * elements
    )
