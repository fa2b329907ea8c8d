"""The simulated arena: no overlap, best fit, and the bytes of a graph worked out by hand."""

import math
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pocketune.compiler.passes.arena import Arena, arena_bytes, integer_scratch
from pocketune.compiler.passes.liveness import Liveness, Operator

KB = 1 << 10


@given(st.lists(st.tuples(st.integers(1, 40 << 20), st.booleans()), max_size=40))
def test_chunks_do_not_overlap_and_free_gaps_are_joined(
    requests: list[tuple[int, bool]],
) -> None:
    arena, held = Arena(), list[tuple[int, int]]()
    for size, freed in requests:
        address, taken = arena.allocate(size)
        assert taken >= size
        assert all(a + s <= address or address + taken <= a for a, s in held)
        held.append((address, taken))
        if freed:
            arena.free(*held.pop(len(held) // 2))
    assert arena.used >= sum(taken for _, taken in held)
    while held:
        arena.free(*held.pop())
    assert len(arena._gaps) == 1  # all is one gap again


def test_a_tensor_is_put_into_the_smallest_gap_that_holds_it() -> None:
    arena = Arena()
    large, _, small, _ = [arena.allocate(size * KB) for size in (300, 1, 100, 1)]
    arena.free(*large)
    arena.free(*small)
    assert arena.allocate(100 * KB) == small
    assert arena.allocate(100 * KB)[0] == large[0]
    assert arena.allocate(100 * KB)[0] == large[0] + 100 * KB
    assert arena.used == 402 * KB


def test_a_gap_that_is_a_little_larger_is_given_whole() -> None:
    arena = Arena()
    chunk, _ = arena.allocate(100 * KB), arena.allocate(KB)
    arena.free(*chunk)
    assert arena.allocate(90 * KB) == chunk


def test_a_tensor_that_fits_in_no_gap_is_behind_all_others() -> None:
    arena = Arena()
    large, _ = arena.allocate(50 << 20), arena.allocate(1000)
    arena.free(*large)
    assert arena.allocate(100 << 20) == ((50 << 20) + 1024, 100 << 20)
    assert arena.used == (150 << 20) + 1024


def test_two_gaps_cannot_hold_one_tensor() -> None:
    def nodes(*steps: tuple[str, str]) -> list[Operator]:
        return [Operator("Op", tuple(read.split()), (made,)) for read, made in steps]

    bytes_ = {"a": 100 * KB, "b": KB, "c": 100 * KB, "d": KB, "wide": 200 * KB, "end": KB}
    order = nodes(("", "a"), ("", "b"), ("", "c"), ("a c", "d"), ("b d", "wide"), ("wide b", "end"))
    liveness = Liveness(bytes_, frozenset({"end"}), {})
    assert liveness.peak(order) == 202 * KB
    assert arena_bytes(liveness, order) == 402 * KB  # `wide` is behind all the others


def test_views_and_outputs() -> None:
    order = [
        Operator("Op", ("x",), ("a",)),
        Operator("Reshape", ("a",), ("view",)),
        Operator("Op", ("view",), ("kept",)),
        Operator("Op", ("kept",), ("b",)),
    ]
    sizes = {"a": 10 * KB, "view": 10 * KB, "kept": 5 * KB, "b": 10 * KB}
    liveness = Liveness(sizes, frozenset({"kept"}), {"view": "a"})
    assert arena_bytes(liveness, order) == 15 * KB
    assert arena_bytes(liveness, order, most=15 * KB) == 15 * KB
    assert 14 * KB < arena_bytes(liveness, order, most=14 * KB) <= 15 * KB


def test_an_integer_convolution_unfolds_one_image() -> None:
    """A kernel of 7 x 7 over 3 channels, read at 5 x 5 places; one of 1 x 1 unfolds nothing."""
    nodes = []
    for name in ("wide", "narrow"):
        nodes.append(helper.make_node("DequantizeLinear", [name, "scale"], [f"{name}.float"]))
        nodes.append(helper.make_node("Conv", ["x", f"{name}.float"], [f"{name}.out"]))
    weights = [
        helper.make_tensor(name, TensorProto.INT8, shape, bytes(math.prod(shape)), raw=True)
        for name, shape in (("wide", (4, 3, 7, 7)), ("narrow", (4, 3, 1, 1)))
    ]
    graph = helper.make_graph(nodes, "g", [], [], weights)
    liveness = Liveness({"wide.out": 4 * 25, "narrow.out": 4 * 25}, set(), {})
    assert integer_scratch(helper.make_model(graph), liveness) == 49 * (8 + 3) * 25


RUN = """
import sys
import numpy as np
from pocketune.device.engine.session import open_session

size = int(sys.argv[2])
session = open_session(open(sys.argv[1], "rb").read(), as_written=True, arena=size, region=size)
session.run(None, {"x": np.ones((512, 512), np.float32)})
"""


@pytest.mark.parametrize("spared", [0, 256])
def test_the_runtime_takes_what_is_simulated(tmp_path: Path, spared: int) -> None:
    """`Where` takes two tensors while it runs, and a view that is an output is a copy."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Greater", ["a", "x"], ["mask"]),
        helper.make_node("Where", ["mask", "a", "x"], ["chosen"]),
        helper.make_node("Mul", ["chosen", "a"], ["b"]),
        helper.make_node("Exp", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["y"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [512, 512])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 512 * 512])
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(model, tmp_path / "graph.onnx")
    size = arena_bytes(Liveness.of(model, {}), nodes)
    command = [sys.executable, "-c", RUN, str(tmp_path / "graph.onnx"), str(size - spared)]
    done = subprocess.run(command, capture_output=True, text=True)
    if spared:
        assert "Available memory of" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
