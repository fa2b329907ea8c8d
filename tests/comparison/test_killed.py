"""Comparisons and runs whose process is killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pocketune.comparison import Comparison, compare
from pocketune.comparison.series import all_series

from .grids import do_here, grid, pocketune, quiet


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
def test_a_kill_loses_no_finished_run(
    photos: Path, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, steps = tmp_path / "out", 200

    def is_training() -> bool:
        saved = (out / "runs").glob("*/last.safetensors")
        return any(not (file.parent / "result.json").exists() for file in saved)

    options = ("--kit", tiny, "--seeds", "3", "--steps", str(steps), "--out", str(out))
    options += ("--val-fraction", "0.2")
    command = [sys.executable, "-m", "pocketune", "compare", str(photos), *options]
    for stop in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        while "1/" not in process.stdout.readline():
            assert process.poll() is None, "it ended before its first run"
        wait_until(is_training)
        runs = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(stop)
        process.communicate()
        assert process.returncode == (-signal.SIGKILL if stop == signal.SIGKILL else 143)
        _, left = psutil.wait_procs(runs, timeout=120)
        assert not left  # a run whose parent was killed saves and ends
    found = [cell for cell in Comparison.read(out).cells if not cell.error]
    assert len(found) >= 2
    done = pocketune(*command[3:])
    assert done.returncode == 0, done.stderr
    result = Comparison.read(out)
    assert [cell.record.steps for cell in result.cells] == [steps] * 3
    monkeypatch.setattr("pocketune.comparison.run_series.run_job", do_here)
    asked = grid(photos, kits=[tiny], seeds=[1], settings={"steps": steps})
    whole = compare(asked, tmp_path / "whole", show=quiet)
    assert whole.cells[0].score == result.cells[1].score


def test_a_run_ends_with_its_parent(photos: Path, tmp_path: Path) -> None:
    planned = all_series(grid(photos, settings={"steps": 10_000}))[0].runs[0]
    code = (
        "import sys, json; from pocketune.processes.job import run_job; "
        "from pocketune.comparison.worker import RunJob; "
        "run_job('pocketune.comparison.worker', RunJob(**json.loads(sys.argv[1])))"
    )
    job = {
        "cell": planned.cell.to_dict(),
        "kit": "last",
        "photos": str(photos),
        "run": str(tmp_path / "run"),
        "settings": planned.settings,
        "out": str(tmp_path / "cell.json"),
    }
    parent = subprocess.Popen([sys.executable, "-c", code, json.dumps(job)])
    last = tmp_path / "run" / "last.safetensors"
    wait_until(last.exists)
    parent.kill()
    parent.wait()
    size = (tmp_path / "run" / "metrics.jsonl").stat

    def stands() -> bool:
        before = size().st_size
        time.sleep(0.5)
        return size().st_size == before

    wait_until(stands)
    assert not (tmp_path / "run" / "result.json").exists()


def wait_until(holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
