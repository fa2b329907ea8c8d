"""ONNX Runtime as WebAssembly, in Node.js, computes every graph."""

import subprocess
from pathlib import Path

import pytest
import safetensors.numpy

from .cases import NAMES, case
from .web import RUNTIME, needs_node, needs_web

pytestmark = [needs_node, needs_web]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case with the outputs; one process of Node.js computes them all."""
    root = tmp_path_factory.mktemp("wasm")
    for name in NAMES:
        case(name).write(root / name)
    script, runtime = Path(__file__).with_name("steps.mjs"), RUNTIME / "ort.node.min.mjs"
    done = subprocess.run(
        ["node", script, runtime, root], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return root


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str, computed: Path) -> None:
    made = case(name)
    for graph in made.models:
        found = safetensors.numpy.load_file(computed / name / f"{graph}.found.safetensors")
        made.check(graph, found)
