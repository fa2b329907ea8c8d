"""Runs within a limit of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.train import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.planner.duration import SAFETY, VALIDATION, limited
from pocketune.planner.trial import Probe

from .fakes import MB


def within(seconds: float, settings: TrainSettings, step: float = 0.1) -> TrainSettings:
    probe = Probe(steps=8, score=None, peak=MB, step_seconds=step, seconds=2 + 8 * step)
    return limited(settings, seconds, probe, step_images=8, training=800, validation=200)


@given(st.floats(3, 10_000), st.integers(1, 5000), st.floats(0.001, 1))
def test_a_limit_shortens_a_run_and_never_makes_it_longer(
    seconds: float, asked: int, step: float
) -> None:
    settings = TrainSettings(steps=asked)
    try:
        steps = within(seconds, settings, step).steps or 0
    except PocketuneError:
        steps, asked = 0, 0
    assert steps <= asked
    each = step * (1 + VALIDATION * 200 / 800)
    assert not steps or 2 + steps * each <= SAFETY * seconds + 1e-6
    assert steps == asked or 2 + (steps + 1) * each > SAFETY * seconds - 1e-6


def test_enough_time_changes_nothing() -> None:
    settings = TrainSettings(epochs=2)
    assert within(1000, settings) is settings


def test_a_shorter_run_counts_steps() -> None:
    shorter = within(30, TrainSettings(epochs=10, lr=0.01))
    assert (shorter.steps, shorter.epochs, shorter.lr) == (222, None, 0.01)


def test_no_time_for_one_step() -> None:
    with pytest.raises(PocketuneError, match=r"^2 s are left for training, and one step takes 2 s"):
        within(2, TrainSettings())
