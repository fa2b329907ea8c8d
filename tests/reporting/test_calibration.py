"""The reliability diagram and the expected calibration error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.reporting.calibration import calibrate

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


def test_nothing_cannot_be_calibrated():
    with pytest.raises(ValueError, match="no decisions"):
        calibrate(np.zeros(0), np.zeros(0, bool))
