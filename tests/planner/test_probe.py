"""Short runs in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketune.device.train import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.planner import probe as probe_module
from pocketune.planner.probe import ProbeJob, run_probe
from pocketune.planner.trial import Length

from ..device.softmax_engine import CLASSES, write_photos
from ..device.tiny_kit import TinyKit


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photos(tmp_path_factory.mktemp("data") / "photos")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyKit(classes=CLASSES, size=16).write(tmp_path_factory.mktemp("k") / "tiny.zip").path


def test_a_run_is_measured_and_removed(tmp_path: Path, photos: Path, kit: Path) -> None:
    probe = run_probe(kit, photos, TrainSettings(budget="4GB"), tmp_path, Length(steps=3))
    assert probe.steps == 3
    assert probe.score is not None
    assert 10_000_000 < probe.peak < 4_000_000_000
    assert 0 < probe.step_seconds < probe.seconds
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_replaced(tmp_path: Path, photos: Path, kit: Path) -> None:
    (tmp_path / probe_module.RUN).mkdir()
    (tmp_path / probe_module.RUN / "metrics.jsonl").write_text("half of a line")
    assert run_probe(kit, photos, TrainSettings(), tmp_path, Length(steps=3)).steps == 3
    assert list(tmp_path.iterdir()) == []


def test_its_warm_up_is_shorter_with_its_steps(
    tmp_path: Path, photos: Path, kit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []

    def job(_module: str, job: ProbeJob, *, seconds: float | None) -> None:
        jobs.append(job)
        raise PocketuneError("enough")

    monkeypatch.setattr(probe_module, "run_job", job)
    settings = TrainSettings(epochs=2, warmup=20)
    with pytest.raises(PocketuneError, match="enough"):
        run_probe(kit, photos, settings, tmp_path, Length(steps=5, share=0.125))
    assert (jobs[0].settings["steps"], jobs[0].settings["warmup"]) == (5, 2)


def test_a_run_that_fails_says_why(tmp_path: Path, photos: Path, kit: Path) -> None:
    with pytest.raises(PocketuneError, match=r"^the budget of 1.0 MB is smaller than"):
        run_probe(kit, photos, TrainSettings(budget="1MB"), tmp_path, Length(steps=3))
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_takes_too_long_is_stopped(tmp_path: Path, photos: Path, kit: Path) -> None:
    with pytest.raises(PocketuneError, match="3 steps took longer than 0 s"):
        run_probe(kit, photos, TrainSettings(), tmp_path, Length(steps=3, seconds=0.01))
    assert list(tmp_path.iterdir()) == []
