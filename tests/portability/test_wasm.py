"""ONNX Runtime as WebAssembly, in Node.js, computes every graph."""

from pathlib import Path

import pytest

from .cases import NAMES, check_computed, compute
from .web import RUNTIME, needs_node, needs_web

pytestmark = [needs_node, needs_web]


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case with the outputs; one process of Node.js computes them all."""
    script, runtime = Path(__file__).with_name("steps.mjs"), RUNTIME / "ort.node.min.mjs"
    return compute(tmp_path_factory.mktemp("wasm"), ["node", script, runtime], 250)


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str, computed: Path) -> None:
    check_computed(name, computed)
