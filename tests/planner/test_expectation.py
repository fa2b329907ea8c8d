"""What candidates are expected to reach, from opinions that differ in certainty."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.planner.expectation import (
    GAINS,
    HALF_GAIN_STEPS,
    Training,
    expected_score,
    standard_error,
)
from pocketune.planner.trial import HeadScore, Probe, Trial
from pocketune.tasks import Score

from .fakes import MB, candidate

shares, counts = st.floats(0, 1), st.integers(1, 2000)


def trial(
    features: tuple[float, int] | None = None,
    run: tuple[float, int] | None = None,
    method: str = "last",
) -> Trial:
    """A trial with the score and number of photos of its features and of a run."""
    made = Trial(candidate=replace(candidate("a"), method={"name": method}))
    if features:
        score, photos = Score("accuracy", features[0], 1.0), features[1]
        made = replace(made, heads=(HeadScore(score=score, seconds=1.0, photos=photos),))
    if run:
        score, photos = Score("accuracy", run[0], 1.0), run[1]
        made = made.probed(
            Probe(steps=40, score=score, peak=MB, step_seconds=0.01, seconds=2.0, photos=photos)
        )
    return made


def test_nothing_is_expected_of_what_was_not_scored() -> None:
    assert expected_score(trial(), Training()) is None


@given(shares, counts)
def test_features_promise_the_gain_of_the_method(value: float, photos: int) -> None:
    for method, gain in GAINS.items():
        known = trial((value, photos), method=method)
        half = expected_score(known, Training(images=HALF_GAIN_STEPS * known.candidate.step_images))
        assert half == pytest.approx(value + (1 - value) * gain / 2)
        assert expected_score(known, Training()) == pytest.approx(value + (1 - value) * gain)
        assert expected_score(known, Training(seconds=0.0)) == pytest.approx(value)


@given(shares, counts)
def test_a_run_promises_what_its_steps_have_not_gained_yet(value: float, photos: int) -> None:
    for method, gain in GAINS.items():
        known = trial(run=(value, photos), method=method)
        rest = 1 - 40 / (40 + HALF_GAIN_STEPS)
        assert expected_score(known, Training()) == pytest.approx(value + (1 - value) * gain * rest)
        assert expected_score(known, Training(seconds=0.0)) == pytest.approx(value)


@given(shares, shares, counts, counts)
def test_both_opinions_count_by_their_certainty(
    features: float, run: float, looked: int, validated: int
) -> None:
    only = [
        expected_score(trial(features=(features, looked)), Training()),
        expected_score(trial(run=(run, validated)), Training()),
    ]
    both = expected_score(trial((features, looked), (run, validated)), Training())
    assert both is not None and None not in only
    assert min(only) - 1e-9 <= both <= max(only) + 1e-9
    surer = expected_score(trial((features, looked), (run, 10_000_000)), Training())
    assert surer is not None
    assert abs(surer - only[1]) <= abs(both - only[1]) + 1e-6


@given(shares, counts)
def test_the_standard_error_of_a_share(share: float, photos: int) -> None:
    assert 0 < standard_error(share, 4 * photos) < standard_error(share, photos) <= 0.5
