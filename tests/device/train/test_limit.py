"""Runs within a limit of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.cache.code import Features
from pocketune.device.memory.estimate import MemoryEstimate
from pocketune.device.train import limit as limit_module
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.folder import Run, RunIdentity
from pocketune.device.train.limit import (
    HEAD_SECONDS,
    LEAST_HEAD_SECONDS,
    REFIT_SHARE,
    SAFETY,
    SLOWER,
    TIMED,
    Pace,
    fitting_steps,
    head_seconds,
    within,
)
from pocketune.device.train.photos import Photos
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import train
from pocketune.device.train.settings import TrainSettings
from pocketune.device.train.temper import BATCHES
from pocketune.kit.names import LAST

from ..softmax_engine import FrozenEngine, SoftmaxEngine, write_photos, write_softmax_kit

OTHERS = ("cyan", "pink", "rose")
Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A run that ends so many seconds from now."""
    kit = write_softmax_kit(tmp_path / "kit")
    photos = write_photos(tmp_path / "photos", classes=OTHERS)

    def call(seconds: float, **options: Any) -> Run:
        settings = TrainSettings(**options)
        found = Photos.open(photos, settings, kit)
        identity = RunIdentity(kit.identity, found.fingerprint(), found.classes)
        now = time.monotonic()
        return Run(kit, settings, found, identity, MemoryEstimate(*[0] * 7), now, now + seconds)

    return call


def engine(run: Run) -> SoftmaxEngine:
    kit = run.kit
    rng = np.random.default_rng(0)
    return SoftmaxEngine(kit, kit.manifest.task.new_head(kit.state(), len(OTHERS), rng))


@pytest.mark.parametrize(
    ("seconds", "fewest", "most"), [(10_000, 50, 50), (800, 2, 12), (200, 1, 1)]
)
def test_as_many_steps_as_there_is_time_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, seconds: float, fewest: int, most: int
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(0.1, 30.0, opening=90.0))
    run = make(seconds, steps=50)
    shorter = within(run, engine(run))
    assert fewest <= shorter.steps <= most
    assert (shorter.deadline == -math.inf) == (most == 1)
    assert shorter.shortened == (most < 50)


@pytest.mark.parametrize("seconds", [10_000, 800, 200])
def test_the_warm_up_is_shorter_with_the_steps(
    make: Make, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(0.1, 30.0, opening=90.0))
    run = make(seconds, steps=50, warmup=25)
    shorter = within(run, engine(run))
    assert shorter.settings.warmup == shorter.steps // 2


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-30, LEAST_HEAD_SECONDS), (100, 50), (math.inf, HEAD_SECONDS)]
)
def test_photos_for_the_classifier_always_get_some_time(
    make: Make, seconds: float, expected: float
) -> None:
    """Planning and building the kit may have taken all of it."""
    assert head_seconds(make(seconds)) == pytest.approx(expected, abs=5)


def test_fewer_photos_validate_where_time_is_short(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(100.0, 1.0, opening=0.0))
    run = make(6000, steps=50)
    run = within(run, engine(run))
    validation = run.photos.validation
    assert validation is not None
    assert len(validation.dataset) == len(run.photos.splits.val) == 3


@pytest.mark.parametrize(("seconds", "refits"), [(10_000, True), (10_000, False), (30, True)])
def test_time_is_kept_for_the_classifier_of_the_trained_features(
    make: Make, monkeypatch: pytest.MonkeyPatch, seconds: float, refits: bool
) -> None:
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(1.0, 1.0, opening=0.0))
    run = make(seconds, steps=50)
    shorter = within(run, engine(run), refits=refits)
    assert (shorter.refit_seconds > 24) == (refits and seconds > 1000)
    kept = run.deadline - shorter.deadline
    assert (24 < kept < 100) == (shorter.refit_seconds > 0)


@pytest.mark.parametrize(("more", "refits"), [(0.1, True), (-0.1, False)])
def test_the_classifier_and_its_validation_take_a_share_of_the_time(
    make: Make, monkeypatch: pytest.MonkeyPatch, more: float, refits: bool
) -> None:
    """By a clock that stands still; a photo and a step take a second."""
    monkeypatch.setattr(limit_module, "_measure", lambda *_: Pace(1.0, 1.0, opening=0.0))
    run = make(1, steps=500)
    again, validation = SLOWER * len(run.photos.splits.train), len(run.photos.splits.val)
    left = (again + validation) / REFIT_SHARE + more
    clock = SimpleNamespace(monotonic=lambda: run.deadline - left)
    monkeypatch.setattr(limit_module, "time", clock)
    shorter = within(run, engine(run), refits=True)
    assert shorter.refit_seconds == pytest.approx(again if refits else 0)
    # The validation after the steps is among theirs, the one of the classifier is kept for it.
    kept = again + validation if refits else 0
    assert run.deadline - shorter.deadline == pytest.approx(validation + kept)
    # Steps without an update tell how steep the classifier may be.
    kept += 2 * BATCHES
    assert shorter.steps == fitting_steps(left - kept, 1.0, validation, run.steps_per_epoch)


def test_timing_changes_nothing(make: Make) -> None:
    run = make(60, epochs=2)
    timed = engine(run)
    before = timed.state()
    assert within(run, timed).settings == run.settings
    for name, values in timed.state().items():
        np.testing.assert_array_equal(values, before[name])
    endless = replace(run, deadline=math.inf)
    assert within(endless, timed) is endless


@given(st.floats(0, 1e4), st.floats(1e-3, 10), st.floats(0, 100), st.integers(1, 500), st.data())
def test_steps_and_validations_fit(
    seconds: float, step: float, validation: float, per_epoch: int, data: st.DataObject
) -> None:
    steps = fitting_steps(seconds, step, validation, per_epoch)
    validations = 1 + math.ceil(steps / per_epoch)
    if steps:
        assert steps * step + validations * validation <= SAFETY * seconds + 1e-6


@given(st.floats(0, 1e3), st.floats(1e-2, 1), st.floats(0, 1), st.integers(0, 40))
def test_kept_features_leave_time_for_more_steps(
    seconds: float, step: float, share: float, first: int
) -> None:
    plain = fitting_steps(seconds, step, 2.0, 10)
    steps = fitting_steps(seconds, step, 2.0, 10, later=share * step, first=first)
    assert steps >= plain
    taken = min(steps, first) * step + max(0, steps - first) * share * step
    if steps:
        assert taken + (1 + math.ceil(steps / 10)) * 2.0 <= SAFETY * seconds + 1e-6
    if plain <= first:
        assert steps == plain or steps >= first


@pytest.mark.parametrize("cache", ["memory", "off"])
def test_validations_after_the_first_read_kept_features(
    cache: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = write_softmax_kit(tmp_path / "frozen", frozen=True)
    run = replace(make(1000, cache=cache, draws=1, steps=10**6), kit=kit)
    later = 0.004 if cache == "memory" else None
    pace = Pace(photo=2.0, step=1.0, opening=0.5, later=later)
    monkeypatch.setattr(limit_module, "_measure", lambda *_: pace)
    shorter = within(run, FrozenEngine(kit, kit.state()))
    epochs, photos = shorter.steps / run.steps_per_epoch, len(shorter.photos.splits.val)
    if later is None:
        assert epochs * (0.5 + 2.0 * photos) < 900
    else:
        kept = 0.5 + later / run.photos.training.batch * photos
        assert epochs * (0.5 + 2.0 * photos) > 2000
        assert epochs * kept < 900


def test_steps_on_kept_features_are_timed(make: Make, tmp_path: Path) -> None:
    kit = write_softmax_kit(tmp_path / "frozen", frozen=True)
    run = replace(make(1, cache="memory", draws=1, steps=50), kit=kit)
    rng = np.random.default_rng(0)
    timed = FrozenEngine(kit, kit.manifest.task.new_head(kit.state(), len(OTHERS), rng))
    before, seen = timed.state(), []
    gradients = timed.gradients
    timed.gradients = lambda images, *rest: (seen.append(type(images)), gradients(images, *rest))[1]
    pace = limit_module._measure(run, timed)
    assert seen == [np.ndarray] * TIMED + [Features] * TIMED
    assert pace.later is not None and pace.later > 0
    for name, values in timed.state().items():
        np.testing.assert_array_equal(values, before[name])
    assert limit_module._measure(make(1, cache="off"), timed).later is None


def test_no_time_for_a_step_leaves_the_computed_classifier(make: Make, tmp_path: Path) -> None:
    make(1)
    result = train(
        *(tmp_path / "kit", tmp_path / "photos", tmp_path / "out"),
        engine=SoftmaxEngine,
        seconds=1e-9,
        epochs=1,
    )
    assert (result.reason, result.steps, result.head) == ("time", 0, result.head)
    assert result.head not in ("kept", "random")
    counters = Checkpoint.load(result.run / LAST).counters
    assert counters.head_images == 24  # they take less than five seconds


def test_a_short_trial_takes_part_of_the_photos(make: Make, tmp_path: Path) -> None:
    make(1)
    result = train(
        *(tmp_path / "kit", tmp_path / "photos", tmp_path / "out"),
        engine=SoftmaxEngine,
        most=4,
        steps=3,
    )
    photos = RunRecord.read(result.run).photos
    assert (photos.training, photos.validation) == (4, 4)
    assert not list(result.run.glob("known*"))
