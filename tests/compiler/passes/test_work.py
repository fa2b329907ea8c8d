"""The work of a graph: what the runtime executes, by kind."""

from __future__ import annotations

import json
import zipfile
from importlib.resources import files
from math import prod

import numpy as np
import onnx
import pytest

from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.sizes import graph_flops
from pocketune.compiler.passes.work import graph_work
from pocketune.compiler.quantize.static import StaticQuantizer, nominal_ranges
from pocketune.kit.manifest import Work

SHAPE = (2, 8, 6, 6)
MAP = 4 * prod(SHAPE)


def convolution(group: int, *, constant: bool, hint: str = "conv") -> onnx.ModelProto:
    """A 3x3 convolution with a clip behind it."""
    builder, shape = GraphBuilder(), (8, 8 // group, 3, 3)
    x = builder.input("x", FLOAT, SHAPE)
    values = np.linspace(-1, 1, prod(shape), dtype=np.float32).reshape(shape)
    kernel = builder.constant(values) if constant else builder.input("w", FLOAT, shape)
    y = builder.add("Conv", x, kernel, group=group, pads=[1] * 4, hint=hint)
    limits = (builder.constant(np.float32(limit)) for limit in (0, 6))
    builder.emit(builder.add("Clip", y, *limits), "y", FLOAT, SHAPE)
    return builder.model("convolution")


@pytest.mark.parametrize(
    ("group", "constant", "hint", "optimized", "kind"),
    [
        (1, False, "conv", False, "dense"),
        (1, True, "conv", False, "dense"),  # the step is executed as it is written
        (1, True, "conv", True, "blocked"),
        (1, False, "conv", True, "dense"),
        (2, False, "conv", False, "dense"),
        (8, False, "conv", False, "depthwise"),
        (8, False, "depthwise", False, "blocked_depthwise"),
        (8, True, "conv", True, "blocked_depthwise"),
    ],
)
def test_kinds_of_convolutions(
    group: int, constant: bool, hint: str, optimized: bool, kind: str
) -> None:
    model = convolution(group, constant=constant, hint=hint)
    work = graph_work(model, {}, optimized=optimized)
    kernel = 9 * 8 * 8 // group
    flops = 2 * prod(SHAPE) * 9 * 8 // group
    expected = {kind: Work(1, flops, 2 * MAP + 4 * kernel)}
    if not optimized:  # otherwise the clip is part of the convolution
        expected["elementwise"] = Work(1, prod(SHAPE), 2 * MAP + 8)
    assert work == expected


@pytest.mark.parametrize("group", [1, 8])
def test_integers_are_a_kind_of_their_own(group: int) -> None:
    model = convolution(group, constant=True)
    model = StaticQuantizer(model, nominal_ranges(model)).quantize()
    work = graph_work(model, {}, optimized=True)
    kind = "integer" if group == 1 else "integer_depthwise"
    assert set(work) == {kind, "elementwise"}
    assert work[kind].calls == 1
    assert work[kind].bytes < 2 * MAP + 4 * 9 * 8 * 8 // group


def test_products_moves_and_views() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", FLOAT, (4, 6)), builder.input("w", FLOAT, (6, 3))
    y = builder.add("Transpose", builder.add("MatMul", x, w), perm=[1, 0])
    y = builder.add("Reshape", y, builder.constant(np.array([12])))
    builder.emit(builder.add("Neg", y), "y", FLOAT, (12,))
    assert graph_work(builder.model("products"), {}, optimized=False) == {
        "matrix": Work(1, 2 * 4 * 6 * 3, 4 * (24 + 18 + 12)),
        "move": Work(1, 0, 4 * 24),
        "elementwise": Work(2, 12, 4 * 24),
    }


def test_the_work_of_all_kinds_is_that_of_the_graph() -> None:
    model = convolution(8, constant=False)
    work = graph_work(model, {}, optimized=False)
    assert sum(each.flops for each in work.values()) == graph_flops(model, {})
    assert sum(each.calls for each in work.values()) == len(model.graph.node)


def test_the_probes_of_the_device_count_work_as_kits_do() -> None:
    """Otherwise make them again, with tools/make_probes.py."""
    archive = files("pocketune.device") / "probes.zip"
    with archive.open("rb") as file, zipfile.ZipFile(file) as probes:
        for number, probe in enumerate(json.loads(probes.read("probes.json"))):
            model = onnx.load_from_string(probes.read(f"{number}.onnx"))
            work = {kind: Work(**each) for kind, each in probe["work"].items()}
            assert graph_work(model, {}, optimized=probe["optimized"]) == work, probe["kind"]
