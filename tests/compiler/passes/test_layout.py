"""Which depthwise convolutions the device computes in blocks, and that it computes the same."""

import platform

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.blocked import DEPTHWISE, block_depthwise
from pocketune.compiler.passes.layout import SMALL, leave_large_plain

from ..lowering import ALWAYS_ROWS, NEVER_ROWS, Function, assert_close, double, leaf, lower_function


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
    leave_large_plain(model, {})
    assert names(model) == blocked
    onnx.checker.check_model(model)


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
    leave_large_plain(model, {})
    assert names(model) == [blocked]


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
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        blocked.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, {f"input{i}": t.detach().numpy() for i, t in enumerate(inputs)})
    for ours, exact in zip(found, step(*map(double, inputs)), strict=True):
        assert_close(ours, exact.detach().numpy())
