"""Runs that are refused or stopped for their budget of memory."""

from pathlib import Path

import pytest

from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.process import ProcessMemory
from pocketune.device.train import loop as loop_module
from pocketune.device.train import run as run_module
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.progress import Silent
from pocketune.device.train.run import resume
from pocketune.kit.names import LAST

from ..softmax_engine import SoftmaxEngine
from .examples import PER_EPOCH, Run


def test_a_budget_below_the_runtime_leaves_no_run(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match=r"the budget of 5.0 MB is smaller than the"):
        run(budget="5MB")
    assert not (tmp_path / "run").exists()


def test_a_budget_below_the_prediction_leaves_no_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "process_memory", lambda: ProcessMemory(50_000_000, 50_000_000))
    with pytest.raises(BudgetExceeded, match=r"the budget of 70 MB is .* short: .* a kit of batch"):
        run(budget="70MB")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("after", "step"), [(1, 0), (3, 1), (10, 6)])
def test_a_run_over_its_budget_is_saved_and_stops(
    after: int, step: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = iter([100] * (after - 1) + [60_000_000_000])
    monkeypatch.setattr(
        loop_module, "process_memory", lambda: ProcessMemory(100, next(peaks, 60_000_000_000))
    )
    with pytest.raises(BudgetExceeded, match=r"memory reached 60000 MB by step .*resume it with"):
        run(budget="50GB")
    assert Checkpoint.load(tmp_path / "run" / LAST).counters.step == step
    result = resume(tmp_path / "run", engine=SoftmaxEngine, progress=Silent(), budget="80GB")
    assert result.steps == 18
    assert Checkpoint.load(result.run / LAST).settings.budget == 80 * 10**9


def test_a_finished_run_does_not_advise_to_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 2 + 3 * (PER_EPOCH + 2)  # after each step and each batch of a validation
    peaks = iter([100] * checks)
    monkeypatch.setattr(
        loop_module, "process_memory", lambda: ProcessMemory(100, next(peaks, 60_000_000_000))
    )
    assert run(budget="50GB").reason == "steps"
    assert next(peaks, None) is None
