"""The reliability diagram and the expected calibration error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.reporting.calibration import calibrate
from pocketune.reporting.charts.reliability import reliability_chart

decisions = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def plain_error(sure: list[float], right: list[bool], bins: int) -> float:
    """The formula of Guo et al. (2017), bin by bin."""
    error = 0.0
    for number in range(bins):
        low, high = number / bins, (number + 1) / bins
        inside = [
            (s, r)
            for s, r in zip(sure, right, strict=True)
            if low < s <= high or (number == 0 and s == 0)
        ]
        if inside:
            confidence = sum(s for s, _ in inside) / len(inside)
            accuracy = sum(r for _, r in inside) / len(inside)
            error += len(inside) / len(sure) * abs(accuracy - confidence)
    return error


@given(decisions)
def test_the_error_is_that_of_the_formula(given_decisions):
    # sixteenths are exact, so that both sides put a value on an edge into the same bin
    sure = [round(s * 16) / 16 for s, _ in given_decisions]
    right = [r for _, r in given_decisions]
    found = calibrate(np.array(sure), np.array(right), bins=16)
    assert found.error == pytest.approx(plain_error(sure, right, 16))
    assert sum(each.count for each in found.bins) == len(sure)
    assert found.accuracy == pytest.approx(np.mean(right))


def test_a_model_that_is_right_as_often_as_it_says_has_no_error():
    found = calibrate(np.full(10, 0.7), np.arange(10) < 7)
    assert found.error == pytest.approx(0)
    assert len(found.bins) == 15


def test_confidences_of_attributes_count_one_by_one():
    sure = np.array([[0.9, 0.6], [0.8, 0.7]])
    right = np.array([[True, False], [True, True]])
    found = calibrate(sure, right, bins=10)
    assert [each.count for each in found.bins[5:]] == [1, 1, 1, 1, 0]
    assert found.confidence == pytest.approx(0.75)


def test_chance_explains_the_error_of_most_models_whose_confidence_is_right():
    rng = np.random.default_rng(0)
    beyond = apart = 0
    for _ in range(300):
        sure = rng.beta(6, 1, 60)
        found = calibrate(sure, rng.random(60) < sure)
        beyond += found.error > found.chance
        apart += abs(found.confidence - found.accuracy) > found.apart_by_chance
    assert beyond / 300 < 0.08 and apart / 300 < 0.08


@pytest.mark.parametrize(
    ("sure", "right", "count", "said"),
    [
        ((0.75, 0.95), (0.85, 0.86), 60, "60 decisions cannot tell whether confidence is off"),
        ((0.75, 0.95), (0.85, 0.86), 6000, "Confidence is off in both directions"),
        ((0.9, 0.9), (0.6, 0.6), 60, "The model is too sure of itself"),
        ((0.6, 0.6), (0.9, 0.9), 60, "The model is not sure enough of itself"),
        ((0.8, 0.8), (0.8, 0.8), 60, "Confidence can be taken at its word"),
    ],
)
def test_a_chart_judges_what_is_beyond_chance(sure, right, count, said):
    half = count // 2
    confidences = np.repeat(sure, half)
    marks = np.concatenate([np.arange(half) < round(share * half) for share in right])
    assert reliability_chart(calibrate(confidences, marks)).text.startswith(f"{said}: ")


def test_nothing_cannot_be_calibrated():
    with pytest.raises(ValueError, match="no decisions"):
        calibrate(np.zeros(0), np.zeros(0, bool))
