"""The backward pass recomputes activations from the input of their norm."""

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.activations import (
    NORMALIZED,
    read_originals,
    recompute_activations,
)
from pocketune.compiler.passes.blocked import DEPTHWISE, is_depthwise
from pocketune.compiler.passes.schedule import order_for_memory
from pocketune.compiler.passes.sizes import tensor_bytes
from pocketune.device.engine.session import open_session

ROWS, SIDE, LAYERS = 64, 64, 5


def arena(model: onnx.ModelProto) -> int:
    """Of the model in the best order found, which it then has."""
    return order_for_memory(model, tensor_bytes(model, {}))


def step(activation: str = "Clip", *, kept: bool = True, shortcut: bool = False) -> onnx.ModelProto:
    """Products, norms and activations; then readers of them all in the other order.

    The backward pass reads the centered inputs of the norms if they are `kept`.
    """
    b = GraphBuilder()
    y = b.input("features", FLOAT, (ROWS, SIDE))
    labels = b.input("labels", FLOAT, (ROWS, SIDE))
    layers = []
    for i in range(LAYERS):
        made = b.add("MatMul", y, b.input(f"w{i}", FLOAT, (SIDE, SIDE)))
        scale, bias = (b.input(f"{name}{i}", FLOAT, (SIDE,)) for name in ("scale", "bias"))
        mean = b.add("ReduceMean", made, b.constant(np.array([0])), keepdims=0)
        centered = b.add("Sub", made, mean)
        normed = b.add("Add", b.add("Mul", centered, scale, hint=NORMALIZED), bias)
        active = _active(b, activation, normed)
        y = b.add("Add", active, y) if shortcut else active
        layers.append((centered, y))
    b.emit(b.add("ReduceSum", b.add("Sub", y, labels), keepdims=0), "loss", FLOAT, ())
    gradient = b.add("Sub", y, labels)
    for centered, active in reversed(layers):
        gradient = b.add("Mul", gradient, active)
        if kept:
            gradient = b.add("Add", gradient, centered)
    b.emit(gradient, "gradient", FLOAT, (ROWS, SIDE))
    return b.model("step")


def of_maps() -> onnx.ModelProto:
    """Norms as 1x1 convolutions of maps, whose inputs the backward pass reads in another shape."""
    b = GraphBuilder()
    shape = (2, SIDE, 4, 4)
    y, labels = b.input("features", FLOAT, shape), b.input("labels", FLOAT, shape)
    flat = b.constant(np.array([2, -1]))
    layers = []
    for i in range(LAYERS):
        made = b.add("Conv", y, b.input(f"w{i}", FLOAT, (SIDE, SIDE, 1, 1)))
        scale, bias = b.input(f"scale{i}", FLOAT, (SIDE, 1, 1, 1)), b.input(f"b{i}", FLOAT, (SIDE,))
        b.add("Reshape", made, flat)  # as the forward pass has it
        y = _active(b, "Clip", b.add("Conv", made, scale, bias, hint=NORMALIZED, group=SIDE))
        layers.append((made, y))
    b.emit(b.add("ReduceSum", b.add("Sub", y, labels), keepdims=0), "loss", FLOAT, ())
    gradient = b.add("Reshape", b.add("Sub", y, labels), flat)
    for made, active in reversed(layers):
        gradient = b.add("Mul", gradient, b.add("Reshape", active, flat))
        gradient = b.add("Add", gradient, b.add("Reshape", made, flat))
    b.emit(gradient, "gradient", FLOAT, (2, SIDE * 16))
    return b.model("step")


def _active(b: GraphBuilder, activation: str, normed: str) -> str:
    if activation == "Clip":
        return b.add("Clip", normed, b.constant(0.0), b.constant(6.0))
    if activation == "hard swish":
        return b.add("Mul", normed, b.add("HardSigmoid", normed, alpha=1 / 6))
    return b.add(activation, normed)


def run(model: onnx.ModelProto) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input
    }
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return open_session(model.SerializeToString(), as_written=True).run(None, feeds)


def count(model: onnx.ModelProto, op: str) -> int:
    return [node.op_type for node in model.graph.node].count(op)


def count_norms(model: onnx.ModelProto) -> int:
    return sum(node.name.startswith(NORMALIZED) for node in model.graph.node)


@pytest.mark.parametrize("activation", ["Clip", "Relu", "hard swish"])
def test_results_stay_and_memory_does_not(activation: str) -> None:
    kept, again = step(activation), step(activation)
    recompute_activations(again, tensor_bytes(again, {}), depthwise=False)
    onnx.checker.check_model(again)
    assert arena(again) < 0.8 * order_for_memory(kept, tensor_bytes(kept, {}))
    for found, expected in zip(run(again), run(kept), strict=True):
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_norms_that_are_convolutions() -> None:
    kept, again = of_maps(), of_maps()
    recompute_activations(again, tensor_bytes(again, {}), depthwise=False)
    assert count(again, "Clip") == 2 * LAYERS
    assert count(again, "Conv") == 3 * LAYERS
    assert arena(again) < 0.8 * order_for_memory(kept, tensor_bytes(kept, {}))
    for found, expected in zip(run(again), run(kept), strict=True):
        np.testing.assert_array_equal(found, expected)


def blocks() -> onnx.ModelProto:
    """Products, norms and activations of maps with a depthwise convolution behind each of them."""
    b = GraphBuilder()
    shape = (2, SIDE, 4, 4)
    y, labels = b.input("features", FLOAT, shape), b.input("labels", FLOAT, shape)
    layers = []
    for i in range(LAYERS):
        made = b.add("Conv", y, b.input(f"w{i}", FLOAT, (SIDE, SIDE, 1, 1)))
        scale, bias = b.input(f"scale{i}", FLOAT, (SIDE, 1, 1, 1)), b.input(f"b{i}", FLOAT, (SIDE,))
        active = _active(b, "Clip", b.add("Conv", made, scale, bias, hint=NORMALIZED, group=SIDE))
        kernel = b.input(f"k{i}", FLOAT, (SIDE, 1, 3, 3))
        y = b.add("Conv", active, kernel, hint=DEPTHWISE, group=SIDE, pads=[1] * 4)
        layers += [made, active, y]
    b.emit(b.add("ReduceSum", b.add("Sub", y, labels), keepdims=0), "loss", FLOAT, ())
    gradient = b.add("Sub", y, labels)
    for kept in reversed(layers):
        gradient = b.add("Mul", gradient, kept)
    b.emit(gradient, "gradient", FLOAT, shape)
    return b.model("step")


def test_depthwise_convolutions_are_recomputed_where_that_is_asked_for() -> None:
    models = blocks(), blocks(), blocks()
    for depthwise, model in zip((False, True), models[1:], strict=True):
        recompute_activations(model, tensor_bytes(model, {}), depthwise=depthwise)
        onnx.checker.check_model(model)
    depthwise = [sum(map(is_depthwise, model.graph.node)) for model in models]
    assert depthwise == [LAYERS, LAYERS, 2 * LAYERS]
    kept, activations, everything = (arena(model) for model in models)
    assert everything < 0.8 * activations < 0.8 * kept
    for found, expected in zip(run(models[2]), run(models[0]), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_each_activation_is_recomputed_once() -> None:
    model = step()
    recompute_activations(model, tensor_bytes(model, {}), depthwise=False)
    assert count_norms(model) == count(model, "Clip") == 2 * LAYERS
    assert count(model, "MatMul") == LAYERS


def nodes_of(*nodes: tuple[str, str, str]) -> onnx.ModelProto:
    """A graph of one input `x` and one output `y`; operators, inputs and output of its nodes."""
    made = [onnx.helper.make_node(each, reads.split(), [made]) for each, reads, made in nodes]
    x, y = (onnx.helper.make_tensor_value_info(name, FLOAT, (4,)) for name in "xy")
    return onnx.helper.make_model(onnx.helper.make_graph(made, "step", [x], [y]))


def test_an_original_is_read_while_it_is_needed_and_then_its_copy() -> None:
    model = nodes_of(
        ("Relu", "x", "r"),
        ("Relu", "x", "r_again"),
        ("Neg", "r_again", "early"),
        ("Add", "r early", "last"),
        ("Mul", "last r_again", "y"),
    )
    assert read_originals(model, {"r_again": "r"})
    read = {node.output[0]: list(node.input) for node in model.graph.node}
    assert (read["early"], read["y"]) == (["r"], ["last", "r_again"])
    assert not read_originals(model, {"r_again": "r"})


def test_an_original_is_not_read_before_it_is_made() -> None:
    model = nodes_of(
        ("Relu", "x", "r_again"), ("Neg", "r_again", "early"), ("Relu", "x", "r"),
        ("Add", "r early", "y"),
    )  # fmt: skip
    assert not read_originals(model, {"r_again": "r"})
    assert model.graph.node[1].input == ["r_again"]


def test_a_copy_that_is_no_longer_read_is_removed() -> None:
    model = nodes_of(("Relu", "x", "r"), ("Relu", "x", "r_again"), ("Add", "r r_again", "y"))
    assert read_originals(model, {"r_again": "r"})
    assert [node.output[0] for node in model.graph.node] == ["r", "y"]


def test_what_follows_from_several_layers_is_kept() -> None:
    model = step(shortcut=True)
    recompute_activations(model, tensor_bytes(model, {}), depthwise=False)
    assert count_norms(model) == LAYERS + 1  # the first sum is with an input


@pytest.mark.parametrize(
    "model", [step(kept=False), step("Softplus")], ids=["input not kept", "not cheap"]
)
def test_others_are_kept(model: onnx.ModelProto) -> None:
    before = [node.SerializeToString() for node in model.graph.node]
    recompute_activations(model, tensor_bytes(model, {}), depthwise=False)
    assert [node.SerializeToString() for node in model.graph.node] == before


def perceptron(activation: str) -> onnx.ModelProto:
    """A product, GELU or layer norm, a product; the gradient of the second is an output itself."""
    b = GraphBuilder()
    shape = (ROWS, SIDE)
    x = b.add("MatMul", *(b.input(name, FLOAT, (SIDE, SIDE)) for name in ("features", "w")))
    if activation == "gelu":
        curve = b.add("Erf", b.add("Div", x, b.constant(2**0.5)))
        y = b.add("Mul", x, b.add("Add", curve, b.constant(1.0)))
        kept = x
    else:
        kept, *_ = b.add_many("LayerNormalization", [x, b.constant(np.ones(SIDE))], 3)
        y = b.add("Mul", kept, b.input("scale", FLOAT, (SIDE,)))
    difference = b.add("Sub", y, b.input("labels", FLOAT, shape))
    b.emit(b.add("ReduceSum", difference, keepdims=0), "loss", FLOAT, ())
    b.emit(b.add("Gemm", y, difference, transA=1), "grad.product", FLOAT, (SIDE, SIDE))
    b.emit(b.add("Mul", difference, b.add("Tanh", kept)), "gradient", FLOAT, shape)
    return b.model("step")


@pytest.mark.parametrize("activation", ["gelu", "layer norm"])
def test_what_follows_from_a_kept_tensor_is_recomputed(activation: str) -> None:
    kept, again = perceptron(activation), perceptron(activation)
    recompute_activations(again, tensor_bytes(again, {}), depthwise=False)
    onnx.checker.check_model(again)
    (product,) = (node for node in again.graph.node if "grad.product" in node.output)
    assert product.input[0].endswith("..again")
    assert count(again, "LayerNormalization") == (activation == "layer norm")
    for found, expected in zip(run(again), run(kept), strict=True):
        assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
