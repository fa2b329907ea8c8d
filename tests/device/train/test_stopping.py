"""Runs that are interrupted, or whose numbers are not finite."""

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.cli.errors import message_of
from pocketune.device.engine.base import Gradients
from pocketune.device.train import loop
from pocketune.device.train import run as train_run
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.interrupt import Interrupted, NothingKept, StopRequest
from pocketune.device.train.loop import Diverged
from pocketune.device.train.progress import PhotosReport, Progress, Silent, StepReport
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import TrainResult, resume
from pocketune.errors import OutOfMemory
from pocketune.kit.names import BEST, LAST

from ..failing import failing, interrupt
from ..runs import assert_same_end, write_photos
from ..softmax_engine import SoftmaxEngine
from .examples import PER_EPOCH, Collector, Run, StopError


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_saves_and_says_how_to_go_on(
    number: signal.Signals, run: Run, tmp_path: Path
) -> None:
    def stop(result: Gradients) -> Gradients:
        signal.raise_signal(number)
        return result

    before = signal.default_int_handler
    usual = signal.signal(number, before)  # nohup ignores SIGHUP, some shells SIGINT
    told = Collector()
    try:
        with pytest.raises(Interrupted) as caught:
            run(engine=failing("gradients", 5, stop), progress=told)
    finally:
        after = signal.signal(number, usual)
    folder = tmp_path / "run"
    assert str(caught.value) == (
        f"stopped and saved at step 5 of 18; resume with: pocketune.resume({str(folder)!r})"
    )
    assert (caught.value.run, caught.value.number) == (str(folder), number)
    assert Checkpoint.load(folder / LAST).counters.step == 5
    assert after == before
    assert told.closed
    assert resume(folder, engine=SoftmaxEngine, progress=Silent()).steps == 18


def test_nohup(run: Run) -> None:
    def hang_up(result: Gradients) -> Gradients:
        signal.raise_signal(signal.SIGHUP)
        return result

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(engine=failing("gradients", 5, hang_up)).steps == 18
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("call", "step"), [(1, 0), (5, 12)])
def test_ctrl_c_while_validating(call: int, step: int, run: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=f"at step {step} of 18"):
        run(engine=failing("predict", call, interrupt))
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    whole = run(out=tmp_path / "whole")
    assert_same_end(tmp_path / "run", whole.run)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C has its default effect, even if the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once(run: Run, tmp_path: Path) -> None:
    def twice(result: Gradients) -> Gradients:
        return interrupt(interrupt(result))

    with pytest.raises(
        Interrupted, match="stopped immediately; the last checkpoint is kept; resume"
    ):
        run(engine=failing("gradients", 5, twice), checkpoint_every=3)
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_sends_two_signals(number: signal.Signals, run: Run) -> None:
    def twice(result: Gradients) -> Gradients:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGHUP)
        return result

    before = signal.signal(signal.SIGHUP, signal.default_int_handler)  # nohup ignores it
    try:
        with pytest.raises(Interrupted, match="stopped and saved at step 5") as caught:
            run(engine=failing("gradients", 5, twice))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert caught.value.number == number


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt(signal.SIGTERM)


def test_before_the_first_checkpoint_nothing_is_left(run: Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as caught:
        run(out=tmp_path / "runs" / "deep", engine=raise_interrupt)
    told = "stopped before the first checkpoint: nothing of the run is kept"
    assert str(caught.value) == f"{told}; call train again"
    assert message_of(caught.value) == f"{told}; the same command starts it again"
    assert caught.value.number == signal.SIGTERM
    assert not (tmp_path / "runs").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(Interrupted):
        run(out=tmp_path / "there", engine=raise_interrupt)
    assert not list((tmp_path / "there").iterdir())


def test_after_the_last_step_the_run_is_complete(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_run, "describe_known", raise_interrupt)
    with pytest.raises(Interrupted) as caught:
        run()
    assert str(caught.value) == (
        f"stopped after the last step: the run in {tmp_path / 'run'} is complete, but cannot tell "
        "photos of none of its classes"
    )
    assert caught.value.number == signal.SIGTERM
    assert RunRecord.read(tmp_path / "run").steps == 18


def test_while_the_classifier_is_computed_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_run: object, _engine: object, show: Callable[[object], None]) -> None:
        signal.raise_signal(signal.SIGTERM)
        show(PhotosReport("classifier", 1, 2, 1.0))

    monkeypatch.setattr(loop, "is_refitted", lambda _: True)
    monkeypatch.setattr(loop, "refit", interrupted)
    with pytest.raises(Interrupted, match="after the last step; the last checkpoint is kept"):
        run()
    monkeypatch.undo()
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "run", run(out=tmp_path / "whole").run)


def test_trains_in_another_thread(run: Run) -> None:
    results: list[TrainResult] = []
    thread = threading.Thread(target=lambda: results.append(run(epochs=1)))
    thread.start()
    thread.join()
    assert results[0].steps == PER_EPOCH


class Asking(Silent):
    """Asks to stop after a step, or after a pass over photos has begun."""

    def __init__(self, event: threading.Event, step: int | None = None) -> None:
        self._event, self._step = event, step

    def photos(self, report: PhotosReport) -> None:
        if self._step is None:
            self._event.set()

    def step(self, report: StepReport) -> None:
        if report.step == self._step:
            self._event.set()


def test_a_program_stops_a_run_in_another_thread(run: Run, tmp_path: Path) -> None:
    event, folder = threading.Event(), tmp_path / "run"
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, stop=event, progress=Asking(event, step=5))
        with pytest.raises(
            Interrupted, match="stopped and saved at step 5 of 18; resume"
        ) as caught:
            future.result()
        assert caught.value.resumable
        assert Checkpoint.load(folder / LAST).counters.step == 5
        event.clear()
        asking = Asking(event, step=11)
        future = pool.submit(resume, folder, engine=SoftmaxEngine, progress=asking, stop=event)
        with pytest.raises(Interrupted, match="at step 11 of 18"):
            future.result()
    resume(folder, engine=SoftmaxEngine, progress=Silent())
    assert_same_end(folder, run(out=tmp_path / "whole").run)


def test_a_program_stops_a_run_before_its_first_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()

    def pass_over_photos(*given: object) -> None:
        progress = given[3]
        assert isinstance(progress, Progress)
        progress.photos(PhotosReport("classifier", 1, 2, 1.0))

    monkeypatch.setattr(train_run, "new_state", pass_over_photos)
    for asking in (Asking(event), Silent()):  # the second run is asked before it begins
        with pytest.raises(NothingKept) as caught:
            run(stop=event, progress=asking)
        assert not caught.value.resumable
        assert not (tmp_path / "run").exists()


def test_a_program_stops_a_run_after_its_last_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = threading.Event()

    def pass_over_photos(_run: object, _state: object, progress: Progress) -> None:
        progress.photos(PhotosReport("classes", 1, 2, 1.0))

    monkeypatch.setattr(train_run, "describe_known", pass_over_photos)
    with pytest.raises(Interrupted, match="after the last step: the run in") as caught:
        run(stop=event, progress=Asking(event))
    assert not caught.value.resumable
    assert RunRecord.read(tmp_path / "run").steps == 18


ENDING = """
import sys, threading
from pocketune.device import Interrupted, Silent
from pocketune.device.train import train

class Told(Silent):
    def step(self, report):
        began.set()
        threading.main_thread().join(timeout=10)

def work():
    try:
        train("last", sys.argv[1], sys.argv[2], steps=1000, progress=Told())
    except Interrupted as stopped:
        print(stopped.number, stopped)

began = threading.Event()
threading.Thread(target=work).start()
began.wait()
"""


def test_the_end_of_the_main_thread_saves_the_run(tmp_path: Path) -> None:
    """Python waits for other threads, but no pool of threads decodes photos for them any more."""
    photos = write_photos(tmp_path / "photos", ("cat", "dog"), each=12)
    command = [sys.executable, "-c", ENDING, str(photos), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{signal.SIGTERM:d} stopped ")
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step <= 2


def test_handlers_of_a_program_that_embeds_python_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python does not know them, and could not set them again."""
    taken: list[int] = []
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda number, _: taken.append(number))
    with StopRequest():
        pass
    assert not taken


def test_what_a_display_raises_ends_the_run(run: Run, tmp_path: Path) -> None:
    class Failing(Silent):
        def step(self, report: StepReport) -> None:
            if report.step == 5:
                raise StopError

    with pytest.raises(StopError):
        run(progress=Failing(), checkpoint_every=2)
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == 4
    resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent())
    assert_same_end(tmp_path / "run", run(out=tmp_path / "whole").run)


def spoilt(values: Gradients) -> Gradients:
    values.values["fc.bias"][0] = np.inf
    return values


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (lambda g: Gradients(math.nan, g.metrics, g.values), "the loss"),
        (lambda g: Gradients(math.inf, g.metrics, g.values), "the loss"),
        (spoilt, "a gradient"),
    ],
)
def test_numbers_that_are_none_stop_the_run(
    action: Callable[[Gradients], Gradients], what: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(Diverged) as caught:
        run(engine=failing("gradients", 5, action), checkpoint_every=2)
    assert str(caught.value) == (
        f"{what} is not finite at step 5: start again with a learning rate lower than "
        f"0.05, such as 0.005, or set clip to 1; the last good state is kept in {tmp_path / 'run'}"
    )
    kept = Checkpoint.load(tmp_path / "run" / LAST)
    assert kept.counters.step == 4
    assert all(np.isfinite(array).all() for array in (kept.parameters | kept.statistics).values())


def test_a_run_that_is_refused_memory_is_saved_and_goes_on(run: Run, tmp_path: Path) -> None:
    class Refused(SoftmaxEngine):
        calls = 0

        def gradients(self, *arguments: Any) -> Gradients:
            Refused.calls += 1
            if Refused.calls == 5:
                raise MemoryError
            return super().gradients(*arguments)

    folder = tmp_path / "run"
    with pytest.raises(OutOfMemory) as caught:
        run(engine=Refused, checkpoint_every=100)
    assert str(caught.value) == (
        f"the system refused memory in step 5; allow more; resume with: "
        f"pocketune.resume({str(folder)!r})"
    )
    assert Checkpoint.load(folder / LAST).counters.step == 4
    resume(folder, engine=SoftmaxEngine, progress=Silent())
    assert_same_end(folder, run(out=tmp_path / "whole").run)


def test_a_checkpoint_is_kept_where_memory_is_refused_in_an_update(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    def spend(report: Gradients) -> Gradients:
        monkeypatch.setattr("pocketune.device.train.optimizer.Optimizer.step", refuse)
        return report

    folder = tmp_path / "run"
    with pytest.raises(OutOfMemory, match="in step 5; allow more; resume with"):
        run(engine=failing("gradients", 5, spend), checkpoint_every=2)
    assert Checkpoint.load(folder / LAST).counters.step == 4
    monkeypatch.undo()
    resume(folder, engine=SoftmaxEngine, progress=Silent())
    assert_same_end(folder, run(out=tmp_path / "whole").run)


def test_predictions_that_are_not_finite_stop_the_run(run: Run, tmp_path: Path) -> None:
    def spoil(logits: FloatArray) -> FloatArray:
        return logits * np.float32(np.nan)

    with pytest.raises(Diverged, match="the validation loss is not finite"):
        run(engine=failing("predict", 1, spoil), clip=1.0)
    assert not (tmp_path / "run" / BEST).exists()
