"""Runs where the system grants little memory or address space: to their end, or to a sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .conftest import environment
from .memory_group import memory_group

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits differ by system")

LIMIT = 420_000_000
"""Bytes of address space: a run takes 280 MB of it, reserved ones included, PyTorch alone 600."""

LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def limited(
    folder: Path, *arguments: object, limit: int = LIMIT
) -> subprocess.CompletedProcess[str]:
    """Run a module under a limit."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *map(str, arguments)],
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


@pytest.mark.parametrize("limit", [60_000_000, 150_000_000, 250_000_000])
def test_less_address_space_than_the_libraries_take_is_one_sentence(
    photos: Path, kit: Path, tmp_path: Path, limit: int
) -> None:
    train = "pocketune", "train", photos, "--kit", kit, "--out", "run"
    done = limited(tmp_path, *train, limit=limit)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"of address space, and this process may have {limit // 10**6} MB" in line
    assert not list(tmp_path.iterdir())


def test_a_version_needs_no_libraries(tmp_path: Path) -> None:
    done = limited(tmp_path, "pocketune", "--version", limit=60_000_000)
    assert done.returncode == 0, done.stderr


JOINED = """
import os, runpy, sys
from pathlib import Path
Path(sys.argv[1]).write_text(str(os.getpid()))
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""

SMALL_MACHINE = 80_000_000
"""Bytes of memory; `blocks` takes 72 MB with photos of this size, and importing PyTorch 200."""


@pytest.fixture
def small_machine(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a module where the kernel kills what takes more memory."""
    with memory_group(SMALL_MACHINE) as group:

        def run(*arguments: object) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-c", JOINED, str(group), *map(str, arguments)],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
            )

        yield run


@pytest.mark.parametrize("kit", ["last", "blocks"])
def test_bundled_kits_train_in_a_small_machine(
    kit: str, photos: Path, tmp_path: Path, small_machine: Any
) -> None:
    done = small_machine("pocketune", "train", photos, "--kit", kit, "--out", "run", "--steps", 4)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "best.safetensors").is_file()


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_cannot_be_imported_in_a_small_machine(small_machine: Any) -> None:
    assert small_machine("torch").returncode == -signal.SIGKILL
