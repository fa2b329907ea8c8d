"""Runs that go on where they were stopped."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pocketune.device.engine.base import Gradients
from pocketune.device.memory.process import ProcessMemory
from pocketune.device.train import limit as limit_module
from pocketune.device.train import run as run_module
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.limit import Pace
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import resume
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, LAST
from pocketune.kit.tensors import read_tensors, write_tensors

from ..failing import failing
from ..runs import assert_same_end
from ..softmax_engine import BATCH, SoftmaxEngine, write_photos, write_softmax_kit
from .examples import Run, StopError


def stop(_: Gradients) -> Gradients:
    """The end of a process in the middle of a run."""
    raise StopError


@pytest.mark.parametrize(
    ("optimizer", "at"),
    [("adam", at) for at in (1, 4, 6, 7, 11, 18)] + [("adam8", 7), ("adam8", 11), ("sgd", 11)],
)
def test_resumed_runs_end_with_the_same_bits(
    optimizer: str, at: int, run: Run, tmp_path: Path
) -> None:
    whole = run(out=tmp_path / "whole", optimizer=optimizer)
    with pytest.raises(StopError):
        run(engine=failing("gradients", at, stop), optimizer=optimizer, checkpoint_every=2)
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    one = Checkpoint.load(tmp_path / "run" / LAST)
    assert one.settings.checkpoint_every == 2
    assert_same_end(tmp_path / "run", whole.run)


def test_a_run_that_its_limit_of_time_shortened_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(0.1, 400.0, opening=0.0))
    with pytest.raises(StopError):
        run(engine=failing("gradients", 2, stop), checkpoint_every=1, seconds=10_000)
    result = resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert result.steps < 18
    assert (result.reason, RunRecord.read(tmp_path / "run").reason) == ("time", "time")


def test_a_short_trial_goes_on_with_its_part_of_the_photos(run: Run, tmp_path: Path) -> None:
    whole = run(out=tmp_path / "whole", most=9)
    with pytest.raises(StopError):
        run(engine=failing("gradients", 4, stop), checkpoint_every=1, most=9)
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "run", whole.run)
    assert not list((tmp_path / "run").glob("known*"))


def test_a_resumed_run_keeps_what_the_run_before_it_was_trained_on(
    run: Run, tmp_path: Path
) -> None:
    first = run(out=tmp_path / "first")
    with pytest.raises(StopError):
        run(kit=first.run, engine=failing("gradients", 2, stop), checkpoint_every=1)
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    trained = Checkpoint.load(first.run / LAST).trained
    assert set(Checkpoint.load(tmp_path / "run" / LAST).earlier) == set(trained)


def test_a_run_is_trained_by_one_process_at_a_time(run: Run, tmp_path: Path) -> None:
    message = "the run in .*run is being trained already$"

    def interfere(result: Gradients) -> Gradients:
        with pytest.raises(PocketuneError, match=message):
            resume(tmp_path / "run", engine=SoftmaxEngine)
        for name in (LAST, BEST):
            (tmp_path / "run" / name).rename(tmp_path / name)  # as if it had only just begun
        with pytest.raises(PocketuneError, match=message):
            run()
        for name in (LAST, BEST):
            (tmp_path / name).rename(tmp_path / "run" / name)
        return result

    assert run(engine=failing("gradients", 5, interfere)).steps == 18


def test_checkpoints_by_time(run: Run, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), checkpoint_seconds=1e-9)
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == 4
    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), out=tmp_path / "slow")
    assert Checkpoint.load(tmp_path / "slow" / LAST).counters.step == 0


def test_a_complete_run_is_not_resumed(run: Run) -> None:
    folder = run(epochs=1).run
    with pytest.raises(PocketuneError, match="is complete after 6 steps: there is nothing"):
        resume(folder, engine=SoftmaxEngine)


def test_no_run_to_resume(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PocketuneError, match=r"no run to resume in .*: it has no last.safe"):
            resume(folder, engine=SoftmaxEngine)


@pytest.fixture
def stopped(run: Run, photos: Path, tmp_path: Path) -> Path:
    """A run that stopped at step 4, on its own photos."""

    write_photos(tmp_path / "own")
    with pytest.raises(StopError):
        run(engine=failing("gradients", 5, stop), checkpoint_every=4, photos=tmp_path / "own")
    return tmp_path / "run"


def test_a_damaged_checkpoint(stopped: Path) -> None:
    data = (stopped / LAST).read_bytes()
    (stopped / LAST).write_bytes(data[:-100])
    with pytest.raises(PocketuneError, match=r"last.safetensors is damaged"):
        resume(stopped, engine=SoftmaxEngine)


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata: metadata["settings"].popitem(),
        lambda metadata: metadata["settings"].update(unheard_of=1),
        lambda metadata: metadata["counters"].popitem(),
        lambda metadata: metadata["counters"].update(unheard_of=1),
        lambda metadata: metadata.pop("most"),
    ],
    ids=["older settings", "newer settings", "older counters", "newer counters", "without most"],
)
def test_a_checkpoint_of_another_version(
    change: Callable[[dict[str, Any]], object], run: Run, stopped: Path, tmp_path: Path
) -> None:
    """It is not resumed, and what it has learned is not lost."""
    tensors, metadata = read_tensors(stopped / LAST, kind="checkpoint", codes=True)
    change(metadata)
    write_tensors(stopped / LAST, tensors, kind="checkpoint", metadata=metadata)
    message = "was saved by another version of Pocketune: .* start a new run from this one"
    with pytest.raises(PocketuneError, match=message):
        resume(stopped, engine=SoftmaxEngine)
    run(kit=stopped, out=tmp_path / "new", epochs=0)
    learned, kept = (Model.open(each).state for each in (stopped, tmp_path / "new"))
    assert learned.keys() == kept.keys()
    assert all(np.array_equal(learned[name], kept[name]) for name in learned)


def test_a_trained_network_is_not_a_checkpoint(run: Run, stopped: Path, tmp_path: Path) -> None:
    other = run(out=tmp_path / "other", epochs=1)
    (stopped / LAST).write_bytes((other.run / BEST).read_bytes())
    with pytest.raises(PocketuneError, match="but not a Pocketune checkpoint"):
        resume(stopped, engine=SoftmaxEngine)


def test_a_checkpoint_of_another_kit(run: Run, stopped: Path, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "kit", batch=BATCH + 1)
    other = run(kit=kit, out=tmp_path / "other", epochs=1)
    (stopped / LAST).write_bytes((other.run / LAST).read_bytes())
    with pytest.raises(PocketuneError, match="is a checkpoint of another kit"):
        resume(stopped, engine=SoftmaxEngine)


def test_photos_that_changed(stopped: Path, tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "own" / "red" / "new.png")
    with pytest.raises(PocketuneError, match=r"own have changed since the run in .* started"):
        resume(stopped, engine=SoftmaxEngine)


def test_photos_that_moved(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "own").rename(tmp_path / "moved")
    with pytest.raises(PocketuneError, match=r"no longer at .*own; give their new location"):
        resume(stopped, engine=SoftmaxEngine)
    result = resume(stopped, tmp_path / "moved", engine=SoftmaxEngine, progress=Silent())
    assert result.steps == 18
    assert Checkpoint.load(stopped / LAST).photos == str(tmp_path / "moved")


def test_the_peak_is_that_of_all_processes(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "process_memory", lambda: ProcessMemory(1, 1))
    result = resume(stopped, engine=SoftmaxEngine, progress=Silent())
    assert result.peak_memory == RunRecord.read(stopped).peak_memory > 1


FULL = (
    r"cannot be written: No space left on device; make room; the file that was there is unchanged; "
    r"resume with: pocketune\.resume\('.*'\)$"
)


def test_full_disk(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.fsync, 3  # the best network, its folder and the log

    def fsync(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    before = (stopped / LAST).read_bytes()
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(PocketuneError, match=FULL):
        resume(stopped, engine=SoftmaxEngine, progress=Silent())
    monkeypatch.undo()
    assert (stopped / LAST).read_bytes() == before
    assert resume(stopped, engine=SoftmaxEngine, progress=Silent()).steps == 18


def test_a_run_validates_on_the_photos_that_its_limit_of_time_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(0.1, 500.0, opening=0.0))
    with pytest.raises(StopError):
        run(engine=failing("gradients", 2, stop), checkpoint_every=1, seconds=10_000)
    validates = Checkpoint.load(tmp_path / "run" / LAST).validates
    monkeypatch.undo()
    result = resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert validates is not None and result.best is not None
    assert RunRecord.read(tmp_path / "run").photos.validation == validates < 9
