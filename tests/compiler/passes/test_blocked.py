"""Depthwise convolutions in ONNX Runtime's blocked layout."""

import platform

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pocketune.compiler.passes.blocked import DEPTHWISE, block_depthwise


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
    options.use_per_session_threads = False  # importing the runtime has made threads for all
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
