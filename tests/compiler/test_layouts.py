"""Which depthwise convolutions keep the name that has the device compute them in blocks."""

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.layouts import SMALL, leave_large_plain
from pocketune.device.blocked import DEPTHWISE


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


def test_a_kernel_is_copied_twice() -> None:
    """As it is where one of the output's gradients is the kernel."""
    b = GraphBuilder()
    maps = [b.input(name, FLOAT, (1, 64, 150, 150)) for name in ("x", "g")]
    x, g = (b.add("Neg", name) for name in maps)
    g = b.add("Reshape", g, b.constant(np.array([64, 1, 150, 150])))
    y = b.add("Conv", x, g, hint=DEPTHWISE, group=64)
    b.emit(y, "y", FLOAT, (1, 64, 1, 1))
    model = b.model("test")
    leave_large_plain(model, {})
    assert names(model) == [False]
