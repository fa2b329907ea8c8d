"""The run log metrics.jsonl: whole lines, cut back to a checkpoint."""

import errno
import json
import os
from pathlib import Path

import pytest

from pocketune.device.train import log
from pocketune.device.train.log import MetricsFile, read_log
from pocketune.errors import PocketuneError


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_object_a_line_at_once(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "m")
    metrics.write("step", step=1, loss=0.1 + 0.2)
    assert lines(tmp_path / "m") == [{"kind": "step", "step": 1, "loss": 0.1 + 0.2}]
    metrics.write("end", reason="steps")
    assert lines(tmp_path / "m")[1] == {"kind": "end", "reason": "steps"}
    metrics.close()


@pytest.mark.parametrize("odd", [float("nan"), float("inf")])
def test_stays_json(odd: float, tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "m")
    metrics.write("step", loss=odd)
    assert lines(tmp_path / "m") == [{"kind": "step", "loss": None}]


def test_cuts_off_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    first = MetricsFile(tmp_path / "m")
    first.write("step", step=1)
    keep = first.sync()
    first.write("step", step=2)
    with (tmp_path / "m").open("ab") as file:
        file.write(b'{"kind": "st')  # as a kill in the middle of a line leaves it
    second = MetricsFile(tmp_path / "m", keep=keep)
    assert second.sync() == keep
    second.write("step", step=2)
    second.write("step", step=3)
    assert [line["step"] for line in lines(tmp_path / "m")] == [1, 2, 3]
    assert second.sync() == (tmp_path / "m").stat().st_size


def test_goes_on_where_the_user_deleted_the_file(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "m", keep=1000)
    metrics.write("step", step=8)
    assert lines(tmp_path / "m") == [{"kind": "step", "step": 8}]


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    metrics = MetricsFile(tmp_path / "m")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PocketuneError, match=r".*m cannot be written: No space left on device"):
        metrics.sync()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_device() -> None:
    metrics = MetricsFile(Path("/dev/full"))
    with pytest.raises(PocketuneError, match="/dev/full cannot be written: No space left"):
        metrics.write("step", step=1)


def test_no_permission(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(PocketuneError, match=r".*m cannot be written: Is a directory"):
        MetricsFile(tmp_path / "m")


def test_the_summary_of_a_long_log_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = MetricsFile(tmp_path / "m")
    for step in range(30):
        metrics.write("step", step=step, seconds=float(step), elapsed=2.0 * step, memory=100 + step)
    metrics.close()
    summary = read_log(tmp_path / "m")
    assert summary.step_seconds == list(range(30))
    monkeypatch.setattr(log, "_MOST_STEPS", 8)
    short = read_log(tmp_path / "m")
    assert short.step_seconds == [0, 8, 16, 24]
    assert (short.seconds, short.training_seconds, short.peak_memory) == (58.0, 435.0, 129)
