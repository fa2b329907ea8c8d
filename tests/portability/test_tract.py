"""tract, a runtime in Rust without dependencies, computes the graphs of most methods."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from pocketune.compiler.builder import live_nodes

from .cases import NAMES, case

pytestmark = pytest.mark.skipif(find_spec("tract") is None, reason="run make portability")

COUNTS = ("correct", "pixels")
"""Outputs that are whole numbers; tract's Python package cannot return them."""
REFUSED = {
    ("actprune", "step"): "Compress",  # the size of its output depends on values
    ("segmentation", "step"): "out of bounds",  # one-hot vectors of labels that are no class
    ("tinytl", "step"): "BatchNorm",  # of group norms, whose scales are computed
    ("tinytl", "predict"): "BatchNorm",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str, tmp_path: Path) -> None:
    made, folder = case(name), tmp_path / name
    made.write(folder)
    for graph, model in made.models.items():
        floats = without_counts(model)
        onnx.save(floats, folder / f"{graph}.onnx")
        if (name, graph) in REFUSED:
            with pytest.raises(AssertionError, match=REFUSED[name, graph]):
                run(folder, graph)
            continue
        outputs = [output.name for output in floats.graph.output]
        found = dict(zip(outputs, run(folder, graph), strict=True))
        counts = set(COUNTS).intersection(made.expected[graph])
        made.check(graph, found, without=counts)


def run(folder: Path, graph: str) -> list[NDArray[Any]]:
    """The outputs, in the graph's order."""
    script = Path(__file__).with_name("tract_graph.py")
    files = [
        folder / f"{graph}.{end}" for end in ("onnx", "feeds.safetensors", "found.safetensors")
    ]
    done = subprocess.run(
        [sys.executable, script, *files], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = safetensors.numpy.load_file(files[-1])
    return [found[str(i)] for i in range(len(found))]


def without_counts(model: onnx.ModelProto) -> onnx.ModelProto:
    floats = onnx.ModelProto()
    floats.CopyFrom(model)
    kept = [output for output in model.graph.output if output.name not in COUNTS]
    nodes = live_nodes(model.graph.node, {output.name for output in kept})
    for field, values in ((floats.graph.output, kept), (floats.graph.node, nodes)):
        del field[:]
        field.extend(values)
    return floats
