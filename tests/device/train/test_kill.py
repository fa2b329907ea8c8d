"""A run that is killed again and again ends with the same bits as one that is not."""

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.record import RunRecord
from pocketune.kit.names import LAST, METRICS

from ..runs import assert_same_end, lines
from ..softmax_engine import write_photos, write_softmax_kit

SCRIPT = Path(__file__).parents[1] / "train_process.py"
KILLS = 3  # of a run that keeps features, and of one that does not
CHECKPOINT_STEPS = 2  # as in train_process.py


def start(*arguments: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, SCRIPT, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def killed(delay: float, *arguments: Path) -> bool:
    """Kill a run after so many seconds; false if it ended before."""
    process = start(*arguments)
    time.sleep(delay)
    process.kill()
    process.communicate()
    assert process.returncode <= 0, "the run failed by itself"
    return process.returncode < 0


def saved_step(folder: Path) -> int:
    """The step of the last checkpoint, which must be whole at any moment; -1 without one."""
    if not (folder / LAST).exists():
        return -1
    return Checkpoint.load(folder / LAST).counters.step


def is_finished(folder: Path) -> bool:
    """Whether the last checkpoint is that of a complete run: the last step saves one before too."""
    return (folder / LAST).exists() and bool(Checkpoint.load(folder / LAST).counters.finished)


def repeatable(folder: Path) -> RunRecord:
    """The record of a finished run, without what no two runs share."""
    record = RunRecord.read(folder)
    assert record.training_seconds <= record.seconds
    return replace(
        record,
        seconds=0.0,
        training_seconds=0.0,
        step_seconds=0.0,
        peak_memory=0,
        predicted_memory=0,
        memory_parts=None,
    )


def told_step(folder: Path) -> int:
    """The last step in the metrics, whose last line may be half written."""
    told = [line for line in (folder / METRICS).read_bytes().split(b"\n")[:-1] if b'"step"' in line]
    return json.loads(told[-1])["step"] if told else 0


@pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")
@pytest.mark.parametrize("frozen", [False, True])
def test_kills_at_any_moment_cost_nothing_but_the_steps_since_the_checkpoint(
    frozen: bool, tmp_path: Path
) -> None:
    kit = write_softmax_kit(tmp_path / "kit", frozen=frozen).path
    photos = write_photos(tmp_path / "photos")
    whole = tmp_path / "whole"
    start(kit, photos, whole).communicate()
    assert RunRecord.read(whole).settings["cache"] == ("disk" if frozen else "off")
    moments = random.Random(0)
    kills, runs, at = 0, 0, -1
    while kills < KILLS:
        folder, runs, at = tmp_path / f"run{runs}", runs + 1, -1
        # From the first millisecond, when the folder is made, to well into the training.
        while killed(10 ** moments.uniform(-3, -0.6), kit, photos, folder):
            kills += 1
            before, at = at, saved_step(folder)
            assert at >= before
            if is_finished(folder):  # killed on its way out
                break
            if at >= 0:
                assert told_step(folder) - at <= CHECKPOINT_STEPS
            if kills >= KILLS:
                assert start(kit, photos, folder).wait() == 0
                break
        assert_same_end(folder, whole)
        assert repeatable(folder) == repeatable(whole)
    assert len(lines(whole, "step")) == len({line["step"] for line in lines(whole, "step")})
