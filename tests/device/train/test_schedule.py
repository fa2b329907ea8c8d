"""The learning rate of each step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.device.train.schedule import CosineSchedule


def test_starts_at_the_top_without_warm_up_and_ends_near_zero() -> None:
    rate = CosineSchedule(lr=0.1, steps=1000)
    assert rate(0) == 0.1
    assert rate(500) == pytest.approx(0.05)
    assert 0 < rate(999) < 1e-6
    assert rate(1000) == rate(1500) == pytest.approx(0, abs=1e-12)


def test_equals_the_published_formula() -> None:
    rate = CosineSchedule(lr=0.3, steps=70, warmup=0)
    for step in range(70):
        assert rate(step) == pytest.approx(0.15 * (1 + math.cos(math.pi * step / 70)))


def test_warm_up_rises_in_equal_steps_and_meets_the_cosine() -> None:
    rate = CosineSchedule(lr=1.0, steps=20, warmup=4)
    assert [rate(i) for i in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    falling = [rate(i) for i in range(4, 20)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("warmup", [10, 50])
def test_warm_up_as_long_as_the_run_or_longer(warmup: int) -> None:
    rate = CosineSchedule(lr=1.0, steps=10, warmup=warmup)
    assert all(0 < rate(i) <= 1 for i in range(10))


@given(st.integers(1, 300), st.integers(0, 300))
def test_a_schedule_rises_to_its_peak_and_never_rises_again(steps: int, warmup: int) -> None:
    rates = [CosineSchedule(0.5, steps, warmup)(step) for step in range(steps)]
    assert all(0 <= rate <= 0.5 for rate in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
