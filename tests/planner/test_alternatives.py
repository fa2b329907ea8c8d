"""What a plan says beside its choice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.planner.alternatives import (
    pareto_front,
    runners_up,
    sentences,
    smallest_budget,
    with_less,
    with_more,
)
from pocketune.planner.plan import Plan
from pocketune.planner.trial import Probe, Trial
from pocketune.tasks import Score

from .fakes import MB, Facts, FakeSource, asked, candidate, search

FOUR = {
    "small": Facts(memory=50, value=0.7, step=0.005),
    "slow": Facts(memory=60, value=0.6, step=0.02),
    "middle": Facts(memory=70, value=0.8, step=0.01),
    "large": Facts(memory=120, value=0.9, step=0.02),
}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return search(tmp_path_factory.mktemp("plan"), FakeSource(FOUR), budget=100)


def test_runners_up_are_those_that_were_tried(plan: Plan) -> None:
    assert plan.choice == "middle"
    assert [trial.name for trial in runners_up(plan)] == ["small", "slow"]


def test_the_front_has_no_trial_that_another_beats(plan: Plan) -> None:
    assert [trial.name for trial in pareto_front(plan)] == ["small", "middle"]


def test_other_budgets(plan: Plan) -> None:
    more, less = with_more(plan), with_less(plan)
    assert more is not None
    assert less is not None
    assert (more.name, less.name) == ("large", "small")
    assert smallest_budget(plan) == 50 * MB
    told = sentences(plan)
    assert told[0] == "with 120 MB: large would fit too"
    assert told[1].startswith("with 50 MB: small, accuracy ")


def test_where_everything_fits_there_is_no_larger_budget(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(FOUR))
    assert plan.choice == "large"
    assert with_more(plan) is None


measured = st.tuples(st.floats(0, 1), st.integers(1, 9), st.integers(1, 9))


@given(st.lists(measured, min_size=1, max_size=12))
def test_every_trial_is_on_the_front_or_beaten_by_one_there(
    points: list[tuple[float, int, int]],
) -> None:
    trials = [
        Trial(candidate=candidate(str(number))).probed(
            Probe(
                steps=1,
                score=Score("accuracy", value, 1.0),
                peak=memory,
                step_seconds=step,
                seconds=step,
                photos=100,
            )
        )
        for number, (value, memory, step) in enumerate(points)
    ]
    front = pareto_front(Plan(asked=asked(), process=1, trials=tuple(trials)))
    kept = [points[int(trial.name)] for trial in front]
    for value, memory, step in points:
        assert any(v >= value and m <= memory and s <= step for v, m, s in kept)
    for one in kept:
        worse = [
            o for o in kept if o != one and o[0] <= one[0] and o[1] >= one[1] and o[2] >= one[2]
        ]
        assert not worse
