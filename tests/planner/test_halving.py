"""Rounds of successive halving."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.planner.candidate import Cost
from pocketune.planner.halving import (
    MIN_PROBE_IMAGES,
    OVERHEAD_PER_IMAGE,
    ROUND_GROWTH,
    Pace,
    better_half,
    next_round,
    promising,
    rounds,
)
from pocketune.planner.trial import Probe, Trial
from pocketune.tasks import Score

from .fakes import MB, candidate

PACE = Pace(slowness=2.0, fixed=1.0)


def trial(name: str, *, step: float = 0.01, value: float | None = None) -> Trial:
    cost = Cost(
        optimizer="adam",
        memory=50 * MB,
        least_memory=50 * MB,
        step_seconds=step,
        step_flops=round(step * 1e9),
        parameters=1,
        seconds=0,
    )
    made = Trial(candidate=candidate(name), cost=cost)
    if value is None:
        return made
    score = Score("accuracy", value, 1 - value)
    return made.probed(
        Probe(steps=10, score=score, peak=MB, step_seconds=step, seconds=1.5, photos=240)
    )


trials = st.lists(st.floats(0.001, 1), min_size=1, max_size=12).map(
    lambda steps: [trial(str(number), step=step) for number, step in enumerate(steps)]
)


def test_without_scores_more_work_comes_first() -> None:
    ordered = promising([trial("a", step=0.01), trial("b", step=0.03), trial("c", step=0.02)])
    assert [t.name for t in ordered] == ["b", "c", "a"]


def test_scores_come_before_work() -> None:
    ordered = promising([trial("b", value=0.4, step=0.05), trial("c", value=0.6)])
    assert [t.name for t in ordered] == ["c", "b"]


def test_of_equal_scores_the_one_with_less_work_comes_first() -> None:
    ordered = promising([trial("b", value=0.6, step=0.05), trial("c", value=0.6, step=0.01)])
    assert [t.name for t in ordered] == ["c", "b"]


def test_the_gain_of_a_method_decides_between_scores_that_hardly_differ() -> None:
    far, near = trial("far", value=0.5), trial("near", value=0.6)
    best = trial("best", value=0.59)
    best = replace(best, candidate=replace(best.candidate, method={"name": "blocks"}))
    assert [t.name for t in promising([far, near, best])] == ["best", "near", "far"]


@given(trials, st.floats(0, 1000), st.integers(1, 10_000))
def test_a_round_takes_its_share_of_the_time(some: list[Trial], seconds: float, most: int) -> None:
    planned = next_round(some, PACE, seconds, most)
    assert len(planned.trials) + len(planned.out) == len(some)
    taken = sum(PACE.seconds(t, planned.images) for t in planned.trials)
    if planned.trials:
        assert taken <= seconds + 1e-6
        assert min(MIN_PROBE_IMAGES, most) <= planned.images <= most
        half = list(planned.trials[: -(-len(planned.trials) // 2)])
        images, share = planned.images, seconds / rounds(len(planned.trials))
        if taken > share + 1e-6:  # there is no later round that would say more
            assert sum(PACE.seconds(t, math.ceil(ROUND_GROWTH * images)) for t in half) > share
    else:
        assert PACE.seconds(promising(some)[0], min(MIN_PROBE_IMAGES, most)) > seconds - 1e-6


def test_a_round_that_is_hardly_longer_is_not_made() -> None:
    probed = [trial(name, value=0.5) for name in "ab"]  # of 80 images, in 1.5 s
    assert len(next_round(probed, PACE, 100.0, 4000).trials) == 2
    known = [replace(t, probes=(replace(t.probes[0], steps=400),)) for t in probed]
    as_long = sum(PACE.seconds(t, 3200) for t in known)
    assert len(next_round(known, PACE, as_long, 10_000).trials) < 2


@given(trials)
def test_the_better_half_stays(some: list[Trial]) -> None:
    kept, dropped = better_half(some)
    assert len(kept) == -(-len(some) // 2)
    assert all(a.rank >= b.rank for a in kept for b in dropped)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (16, 4)])
def test_number_of_rounds(count: int, expected: int) -> None:
    assert rounds(count) == expected


def test_a_pace_is_that_of_a_probe() -> None:
    probe = Probe(steps=10, score=None, peak=MB, step_seconds=0.03, seconds=1.3, photos=0)
    pace = Pace.of(probe, trial("a", step=0.01).cost)  # type: ignore[arg-type]
    assert pace.slowness == pytest.approx(3)
    assert pace.fixed == pytest.approx(1)
    assert pace.seconds(trial("b", step=0.02), 80) == pytest.approx(
        1 + 10 * 0.06 * (1 + OVERHEAD_PER_IMAGE)
    )


def test_a_kit_is_built_once() -> None:
    pace, new = Pace(slowness=2.0, fixed=1.0, build=7.0), trial("a")
    assert pace.fixed_of(new) == 8
    assert pace.fixed_of(replace(new, built_seconds=7.5)) == 1
    assert pace.fixed_of(trial("b", value=0.5)) == pytest.approx(1.5 - 10 * 0.01)


def test_what_was_measured_is_not_scaled() -> None:
    measured = trial("a", step=0.02, value=0.5)
    assert PACE.seconds(measured, 80) == pytest.approx(1.5 - 0.2 + 10 * 0.02)
