"""A run on a small file system, which is full before its end, goes on where there is room."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MB = 1_000_000


def _mount(*arguments: str) -> bool:
    command = shutil.which("mount")
    done = command and subprocess.run([command, *arguments], capture_output=True, check=False)
    return bool(done) and done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """`disk(size)`: an empty file system of so many bytes, or the same one with another size."""
    place = tmp_path / "disk"

    def sized(size: int) -> Path:
        if place.is_mount():
            assert _mount("-o", f"remount,size={size}", str(place))
            return place
        place.mkdir()
        if not _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)):
            pytest.skip("no leave to mount a file system")
        return place

    yield sized
    if place.is_mount():
        subprocess.run(["umount", str(place)], check=True)


def test_a_run_goes_on_where_there_is_room(process, photos, disk) -> None:
    place = disk(1 * MB)
    run = place / "run"
    done = process("train", photos, "--kit", "blocks", "--epochs", "1", "--out", run)
    assert (done.returncode, list(place.iterdir())) == (1, [])
    assert done.stderr.endswith("cannot be written: No space left on device; make room\n")

    disk(5 * MB)
    done = process("train", photos, "--kit", "blocks", "--epochs", "1", "--out", run)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"error: {run / 'best.safetensors'} cannot be written: No space left on")
    assert said.endswith(f"device; make room; resume with: pocketune train --resume {run}")
    assert "best.safetensors" not in {path.name for path in run.iterdir()}

    disk(20 * MB)
    done = process("train", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert process("predict", run, photos).returncode == 0
