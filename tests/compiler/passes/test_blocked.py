"""Depthwise convolutions in ONNX Runtime's blocked layout: which ones, and what they compute."""

import platform

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.arena import arena_bytes
from pocketune.compiler.passes.blocked import (
    DEPTHWISE,
    KERNEL_GRADIENT,
    SMALL,
    arena_in_blocks,
    block_depthwise,
    blocked_liveness,
    leave_large_plain,
    padded_liveness,
)
from pocketune.compiler.passes.liveness import Liveness
from pocketune.compiler.passes.sizes import tensor_bytes

from ..lowering import ALWAYS_ROWS, NEVER_ROWS, Function, assert_close, double, leaf, lower_function


def model(
    x: tuple[int, ...], kernel: tuple[int, ...], *, bias: bool = False, name: str = DEPTHWISE, **kw
) -> onnx.ModelProto:
    """One depthwise convolution, whose kernel and bias are inputs, with a node on either side."""
    names = ["a", "kernel", "bias"][: 3 if bias else 2]
    shapes = {"x": x, "kernel": kernel, "bias": kernel[:1]}
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Conv", names, ["b"], name=name, group=x[1], **kw),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in ["x", *names[1:]]
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "test", inputs, [output])
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(source: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    serialized = source.SerializeToString()
    return ort.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])


def operators(source: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in source.graph.node]


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="no blocked kernels for this processor"
)
@settings(max_examples=40)
@given(
    batch=st.integers(1, 3),
    blocks=st.integers(1, 3),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.sampled_from([(3, 3), (5, 5), (3, 5), (1, 1)]),
    stride=st.integers(1, 2),
    pad=st.integers(0, 2),
    bias=st.booleans(),
)
def test_values_are_those_of_the_plain_graph(
    batch: int,
    blocks: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: int,
    pad: int,
    bias: bool,
) -> None:
    channels = 16 * blocks
    shapes = ((batch, channels, *size), (channels, 1, *kernel))
    plain = model(*shapes, bias=bias, strides=[stride] * 2, pads=[pad, pad, pad, pad])
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal(shapes[0], np.float32)}
    feeds["kernel"] = rng.standard_normal(shapes[1], np.float32)
    if bias:
        feeds["bias"] = rng.standard_normal(channels, np.float32)
    (ours,) = session(block_depthwise(plain)).run(None, feeds)
    (expected,) = session(plain).run(None, feeds)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_only_what_is_named_so_is_changed() -> None:
    shapes = ((1, 16, 6, 6), (16, 1, 3, 3))
    marked, other = model(*shapes), model(*shapes, name="conv")
    changed = ["Transpose", "ReorderInput", "Conv", "ReorderInput", "ReorderOutput", "Transpose"]
    assert sorted(operators(block_depthwise(marked))) == sorted(["Neg", "Neg", *changed])
    assert block_depthwise(other) is None
    assert operators(marked) == ["Neg", "Conv", "Neg"]


def test_new_tensors_have_names_of_their_own_whatever_the_modules_are_called() -> None:
    """As of a module `depthwise` with parameters x, y and `kernel`."""
    plain = model((1, 16, 6, 6), (16, 1, 3, 3), bias=True)
    names = {"a": f"{DEPTHWISE}.x", "kernel": f"{DEPTHWISE}.kernel", "bias": f"{DEPTHWISE}.y"}
    for each in plain.graph.input:
        each.name = names.get(each.name, each.name)
    for node in plain.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    plain.graph.output[0].CopyFrom(
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 16, 4, 4))
    )
    onnx.checker.check_model(plain)
    onnx.checker.check_model(block_depthwise(plain))


def test_an_output_that_more_than_a_transpose_reads_stays_as_it_is() -> None:
    """`y` is read by a node, `z` is an output: neither has the channels last alone."""
    shape = (1, 16, 5, 6)
    conv = {"group": 16, "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["y"], name=f"{DEPTHWISE}_1", **conv),
        helper.make_node("Transpose", ["y"], ["y.last"], perm=[0, 2, 3, 1]),
        helper.make_node("Conv", ["y", "kernel"], ["z"], name=f"{DEPTHWISE}_2", **conv),
        helper.make_node("Transpose", ["z"], ["z.last"], perm=[0, 2, 3, 1]),
    ]
    info = helper.make_tensor_value_info
    inputs = [
        info("x", TensorProto.FLOAT, shape),
        info("kernel", TensorProto.FLOAT, (16, 1, 3, 3)),
    ]
    outputs = [info(name, TensorProto.FLOAT, None) for name in ("y.last", "z", "z.last")]
    graph = helper.make_graph(nodes, "test", inputs, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    blocked = block_depthwise(made)
    assert operators(blocked).count("ReorderOutput") == 2
    kernel_turns, output_turns = 4, 2
    assert operators(blocked).count("Transpose") == kernel_turns + output_turns
    if platform.machine() in ("x86_64", "AMD64"):
        rng = np.random.default_rng(0)
        feeds = {"x": rng.standard_normal(shape, np.float32)}
        feeds["kernel"] = rng.standard_normal((16, 1, 3, 3), np.float32)
        found = zip(
            session(blocked).run(None, feeds),
            session(made).run(None, feeds),
            strict=True,
        )
        for ours, expected in found:
            np.testing.assert_allclose(ours, expected, atol=1e-5)


def two_convolutions(side: int) -> onnx.ModelProto:
    """The first runs where three maps live, the most of all; while the second does, there are two.

    A map has 64 channels, so 256 bytes a pixel.
    """
    b = GraphBuilder()
    shape = (1, 64, side, side)
    x = b.input("x", FLOAT, shape)
    kernel = b.constant(np.ones((64, 1, 3, 3), np.float32))
    first = b.add("Neg", x)
    second = b.add("Exp", first)
    third = b.add("Conv", second, kernel, hint=DEPTHWISE, group=64, pads=[1] * 4)
    total = b.add("Add", first, third)
    last = b.add("Conv", total, kernel, hint=DEPTHWISE, group=64, pads=[1] * 4)
    b.emit(last, "y", FLOAT, shape)
    return b.model("test")


def names(model: onnx.ModelProto) -> list[bool]:
    return [n.name.startswith(DEPTHWISE) for n in model.graph.node if n.op_type == "Conv"]


@pytest.mark.parametrize(
    ("side", "blocked"),
    [
        (150, [False, True]),  # three maps and a copy are more than the peak, two and a copy not
        (64, [True, True]),
    ],
)
def test_large_copies_only_below_the_peak(side: int, blocked: list[bool]) -> None:
    model = two_convolutions(side)
    assert (256 * side**2 > SMALL) == (False in blocked)
    assert names(model) == [True, True]
    leave_large_plain(model, tensor_bytes(model, {}))
    assert names(model) == blocked
    onnx.checker.check_model(model)


def test_copies_in_blocks_are_live_too() -> None:
    model = two_convolutions(64)
    plain = Liveness.of(model, {})
    blocked = block_depthwise(model)
    assert blocked is not None
    timeline = blocked_liveness(blocked, plain).timeline(blocked.graph.node)
    maps = [live / (256 * 64**2) for live in timeline]
    # Neg, Exp, ReorderInput, three copies of the kernel, Conv, ReorderOutput; Add, and again
    assert maps == [1, 2, 3, 2, 2, 2, 3, 3, 3, 2, 1, 1, 1, 2, 2]
    assert plain.timeline(model.graph.node) == [256 * 64**2 * each for each in (1, 2, 3, 3, 2)]


@pytest.mark.parametrize(("maps_at_the_peak", "blocked"), [(4, False), (5, True)])
def test_a_kernel_is_copied_twice(maps_at_the_peak: int, blocked: bool) -> None:
    """A gradient may be as large as the input: two maps and three copies of them make five."""
    b = GraphBuilder()
    shape = (1, 64, 150, 150)
    made = [b.add("Neg", b.input("x", FLOAT, shape))]
    while len(made) < maps_at_the_peak - 1:
        made.append(b.add("Exp", made[-1]))
    total = b.add("Sum", *made)
    g = b.add("Reshape", b.add("Neg", total), b.constant(np.array([64, 1, 150, 150])))
    b.emit(b.add("Conv", total, g, hint=DEPTHWISE, group=64), "y", FLOAT, (1, 64, 1, 1))
    model = b.model("test")
    leave_large_plain(model, tensor_bytes(model, {}))
    assert names(model) == [blocked]


@pytest.mark.parametrize(("name", "blocked"), [(DEPTHWISE, False), (KERNEL_GRADIENT, True)])
def test_a_kernel_gradient_may_raise_the_peak_a_little(name: str, blocked: bool) -> None:
    """Five maps, as above, where the peak has four and a half."""
    b = GraphBuilder()
    shape = (1, 64, 150, 150)
    half = b.add("Neg", b.input("half", FLOAT, (1, 32, 150, 150)))
    made = [b.add("Neg", b.input("x", FLOAT, shape))]
    while len(made) < 3:
        made.append(b.add("Exp", made[-1]))
    total = b.add("Sum", *made)
    b.emit(b.add("ReduceMax", half, keepdims=0), "largest", FLOAT, ())
    g = b.add("Reshape", b.add("Neg", total), b.constant(np.array([64, 1, 150, 150])))
    b.emit(b.add("Conv", total, g, hint=name, group=64), "y", FLOAT, (1, 64, 1, 1))
    model = b.model("test")
    leave_large_plain(model, tensor_bytes(model, {}))
    assert names(model) == [blocked]


def test_the_larger_arena_counts() -> None:
    b = GraphBuilder()
    first = b.add("Neg", b.input("x", FLOAT, (1, 64, 64, 64)))
    second = b.add("Exp", first)
    kernel = b.constant(np.ones((64, 1, 3, 3), np.float32))
    third = b.add("Conv", second, kernel, hint=DEPTHWISE, group=64, pads=[1] * 4)
    for i, each in enumerate((first, second, third)):
        b.emit(b.add("ReduceMax", each, keepdims=0), f"largest{i}", FLOAT, ())
    model = b.model("test")
    liveness = Liveness.of(model, {})
    plain = arena_bytes(liveness, model.graph.node)
    # input and output in blocks, where the plain output is not there yet
    assert arena_in_blocks(model, liveness) - plain == pytest.approx(256 * 64**2, rel=0.01)
    for node in model.graph.node:
        node.name = f"plain_{node.name}"
    assert arena_in_blocks(model, liveness) == plain


def inverted_residual(stride: int, kernel: int) -> Function:
    """1x1, depthwise and 1x1 convolution, and all their gradients but that of the input."""

    def step(x: Tensor, expand: Tensor, depthwise: Tensor, project: Tensor, g: Tensor):
        y = F.conv2d(x, expand)
        y = F.conv2d(y, depthwise, None, stride, kernel // 2, groups=depthwise.shape[0])
        y = F.conv2d(y, project)
        return [y, *torch.autograd.grad(y, [expand, depthwise, project], g)]

    return step


def to_channels_first(model: onnx.ModelProto) -> int:
    """How many maps are brought from rows into PyTorch's layout."""
    orders = [list(n.attribute[0].ints) for n in model.graph.node if n.op_type == "Transpose"]
    return orders.count([0, 3, 1, 2])


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="no blocked kernels for this processor"
)
@settings(max_examples=30)
@given(
    batch=st.integers(1, 3),
    hidden=st.sampled_from([16, 24, 48]),
    size=st.tuples(st.integers(4, 8), st.integers(4, 8)),
    stride=st.integers(1, 2),
    kernel=st.sampled_from([3, 5]),
    rows_max_pixels=st.sampled_from([ALWAYS_ROWS, NEVER_ROWS]),
)
def test_blocks_between_rows_and_maps(
    batch: int, hidden: int, size: tuple[int, int], stride: int, kernel: int, rows_max_pixels: int
) -> None:
    """24 channels fill no blocks, but with a batch of two their planes do."""
    step = inverted_residual(stride, kernel)
    x, expand = leaf(batch, 8, *size, grad=False), leaf(hidden, 8, 1, 1, seed=1)
    kernels = [expand, leaf(hidden, 1, kernel, kernel, seed=2), leaf(8, hidden, 1, 1, seed=3)]
    shape = F.conv2d(x, torch.ones(8, 8, kernel, kernel), None, stride, kernel // 2).shape
    inputs = [x, *kernels, leaf(*shape, seed=4, grad=False)]
    model = lower_function(step, inputs, rows_max_pixels=rows_max_pixels)
    blocked = block_depthwise(model)
    assert (blocked is not None) == (hidden % 16 == 0 or batch == 2)
    if blocked is None:
        return
    if hidden % 16 == 0 and rows_max_pixels == ALWAYS_ROWS:
        # the output, and what a transposed convolution reads
        left = 1 if stride == 1 else 2
        assert to_channels_first(blocked) == left < to_channels_first(model)
    feeds = {f"input{i}": t.detach().numpy() for i, t in enumerate(inputs)}
    found = session(blocked).run(None, feeds)
    for ours, exact in zip(found, step(*map(double, inputs)), strict=True):
        assert_close(ours, exact.detach().numpy())
    sizes = blocked_liveness(blocked, Liveness.of(model, {})).bytes
    made = [output for node in blocked.graph.node for output in node.output]
    kernels_copied = {name for name in made if ".kernel" in name and not sizes[name]}
    del blocked.graph.output[:]
    blocked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    for name, values in zip(made, session(blocked).run(None, feeds), strict=True):
        assert sizes[name] == values.nbytes or name in kernels_copied, name


@pytest.mark.parametrize(("channels", "padded"), [(8, 16), (16, 16), (24, 32)])
@pytest.mark.parametrize("bits", [8, 32])
def test_the_runtime_pads_what_convolutions_give(channels: int, padded: int, bits: int) -> None:
    """And what comes of it element by element, but no sum over it."""
    kind = TensorProto.INT8 if bits == 8 else TensorProto.FLOAT
    values = np.zeros((channels, 3, 1, 1), np.int8 if bits == 8 else np.float32)
    kernel = helper.make_tensor("stored", kind, values.shape, values.tobytes(), raw=True)
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [1.0])
    nodes = [
        helper.make_node("DequantizeLinear", ["stored", "scale"], ["kernel"]),
        helper.make_node("Conv", ["x", "kernel" if bits == 8 else "stored"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["y"], keepdims=0),
    ][bits == 32 :]
    x = helper.make_tensor_value_info("x", FLOAT, [1, 3, 4, 4])
    y = helper.make_tensor_value_info("y", FLOAT, [])
    graph = helper.make_graph(nodes, "test", [x], [y], [kernel, scale])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    found = padded_liveness(source, Liveness.of(source, {})).bytes
    assert (found["a"], found["b"], found["y"]) == (4 * padded * 16, 4 * padded * 16, 4)
