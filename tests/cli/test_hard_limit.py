"""A run trains to its end where the system grants less memory than importing PyTorch takes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .conftest import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits differ by system")

LIMIT = 420_000_000
"""Bytes of address space: a run takes 280 MB of it, reserved ones included, PyTorch alone 600."""

LIMITED = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT}, {LIMIT}))
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def limited(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module under the limit."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, arguments)],
        cwd=folder,
        env={**environment(), "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_ends_under_a_limit_that_pytorch_cannot_be_imported_in(
    photos: Path, kit: Path, tmp_path: Path
) -> None:
    options = ["--kit", kit, "--out", "run", "--epochs", 2]
    done = limited(tmp_path, "pocketune", "train", photos, *options)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "best.safetensors").is_file()
    if find_spec("torch") is not None:
        refused = limited(tmp_path, "torch")
        assert refused.returncode != 0
        assert "cannot be directly executed" not in refused.stderr  # as once it is imported
