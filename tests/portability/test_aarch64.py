"""ONNX Runtime on 64-bit ARM, in an emulator, computes every graph; see aarch64.sh."""

import shutil
from pathlib import Path

import pytest

from .cases import NAMES, check_computed, compute

FOLDER = Path(__file__).parents[2] / ".venv-aarch64"
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")

pytestmark = pytest.mark.skipif(
    EMULATOR is None or not FOLDER.is_dir(), reason="run tests/portability/aarch64.sh"
)


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case with the outputs; one process computes them all."""
    assert EMULATOR is not None
    system, script = FOLDER / "system", Path(__file__).with_name("native_graphs.py")
    command = [EMULATOR, "-cpu", "cortex-a72", "-L", system, "-E", "OPENBLAS_NUM_THREADS=1",
               "-E", f"PYTHONPATH={FOLDER / 'site'}", system / "usr" / "bin" / "python3.11",
               script]  # fmt: skip
    return compute(tmp_path_factory.mktemp("aarch64"), command, 280)


@pytest.mark.parametrize("name", NAMES)
def test_every_graph(name: str, computed: Path) -> None:
    check_computed(name, computed)
