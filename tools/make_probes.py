"""Write the small graphs that a device times to learn the speed of its processor.

    python tools/make_probes.py src/pocketune/device/probes.zip

Each probe repeats an operator of one kind on a shape that is common in training steps. Its work is
counted as that of a kit's graphs, so that `pocketune.device.speed` can divide time by work. All
values of a constant are equal, so the archive takes a few kilobytes.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

import pocketune
from pocketune.compiler.builder import FLOAT, GraphBuilder
from pocketune.compiler.passes.work import graph_work
from pocketune.compiler.prepare import prepare
from pocketune.compiler.quantize.static import StaticQuantizer, nominal_ranges

REPEATS = 6
"""Operators in a chain."""

CLASSES = 4


class Probe(NamedTuple):
    """A graph, and the kind of work that it measures."""

    kind: str
    model: onnx.ModelProto


def probes() -> Iterator[Probe]:
    """All probes; the first one measures the time of a call."""
    yield Probe("call", _small_step())
    for batch, channels, side in ((8, 96, 28), (4, 96, 14)):
        shape = (batch, channels, side, side)
        yield _elements(shape)
        yield _transposes(shape)
    for rows, columns in ((1568, 96), (392, 320)):
        yield _products((rows, columns))
    for channels, side, kernel in ((96, 14, 1), (32, 28, 3)):
        yield _convolutions("dense", (4, channels, side, side), kernel)
        yield _convolutions("blocked", (1, channels, 2 * side, 2 * side), kernel)
        yield _convolutions("integer", (1, channels, 2 * side, 2 * side), kernel)
    for channels, side in ((96, 14), (48, 28)):
        shape = (1, 2 * channels, side, side)
        yield _convolutions("depthwise", (4, channels, side, side), 3, channels)
        yield _convolutions("blocked_depthwise", shape, 3, 2 * channels)
        yield _convolutions("integer_depthwise", shape, 3, 2 * channels)


def _small_step() -> onnx.ModelProto:
    """The step of a whole network that is so small that calls take most of its time."""
    network = pocketune.create_network("mobilenet_v2", width=0.1, classes=CLASSES)
    adapted = pocketune.adapt(network, pocketune.FullFineTune())
    model = prepare(adapted, batch=2, size=32).graphs.step
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = CLASSES
    return model


def _elements(shape: tuple[int, ...]) -> Probe:
    """Arithmetic, a clip and a mean, as between the convolutions of a step."""
    builder = GraphBuilder()
    first = name = builder.input("x", FLOAT, shape)
    low, high = (builder.constant(np.float32(limit)) for limit in (0, 6))
    axes = builder.constant(np.array([0, 2, 3]))
    for _ in range(REPEATS // 2):
        name = builder.add("Mul", name, first)
        name = builder.add("Clip", name, low, high)
        name = builder.add("Sub", name, builder.add("ReduceMean", name, axes, keepdims=1))
    return _probe("elementwise", builder, name, shape)


def _products(shape: tuple[int, ...]) -> Probe:
    builder = GraphBuilder()
    name = builder.input("x", FLOAT, shape)
    weight = builder.input("w", FLOAT, (shape[1], shape[1]))
    for _ in range(REPEATS):
        name = builder.add("MatMul", name, weight)
    return _probe("matrix", builder, name, shape)


def _transposes(shape: tuple[int, ...]) -> Probe:
    builder = GraphBuilder()
    name = builder.input("x", FLOAT, shape)
    for number in range(REPEATS):
        name = builder.add("Transpose", name, perm=[0, 3, 1, 2] if number % 2 else [0, 2, 3, 1])
    return _probe("move", builder, name, shape)


def _convolutions(kind: str, shape: tuple[int, ...], kernel: int, group: int = 1) -> Probe:
    """Convolutions with clips between them, as networks have them where they are frozen."""
    builder = GraphBuilder()
    name = builder.input("x", FLOAT, shape)
    weight_shape = (shape[1], shape[1] // group, kernel, kernel)
    constant = kind.startswith(("blocked", "integer"))
    low, high = (builder.constant(np.float32(limit)) for limit in (0, 6))
    weight = "" if constant else builder.input("w", FLOAT, weight_shape)
    for number in range(REPEATS):
        if constant:
            # Equal constants are one, and the runtime opens no integer convolutions that share one
            # where sums of products may overflow: on x86 without VNNI.
            value = (number + 1 if kind.startswith("integer") else 1) / 128
            weight = builder.constant(np.full(weight_shape, value, np.float32))
        name = builder.add("Conv", name, weight, pads=[kernel // 2] * 4, group=group)
        name = builder.add("Clip", name, low, high) if constant else name
    return _probe(kind, builder, name, shape)


def _probe(kind: str, builder: GraphBuilder, name: str, shape: tuple[int, ...]) -> Probe:
    builder.emit(name, "y", FLOAT, shape)
    model = builder.model(kind)
    if kind.startswith("integer"):
        model = StaticQuantizer(model, nominal_ranges(model)).quantize()
    return Probe(kind, model)


def described(probe: Probe) -> dict[str, Any]:
    """A probe for the list in the archive."""
    optimized = probe.kind.startswith(("blocked", "integer"))
    work = graph_work(probe.model, {}, optimized=optimized)
    return {
        "kind": probe.kind,
        "optimized": optimized,
        "work": {kind: asdict(each) for kind, each in work.items()},
    }


def main() -> None:
    """Write every probe and the list of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out, found = parser.parse_args().out, list(probes())
    files = {
        f"{number}.onnx": probe.model.SerializeToString() for number, probe in enumerate(found)
    }
    files["probes.json"] = json.dumps([described(probe) for probe in found], indent=1).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    print(f"{out}: {len(found)} probes, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
