"""Limits of memory and time as a user writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.errors import PocketuneError
from pocketune.planner.limits import PLANNING_SECONDS, Limits, make_limits, parse_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("90s", 90), ("90", 90), ("1h30m", 5400), ("1 h 30 min", 5400), ("1.5M", 90)],
)
def test_a_time_in_words(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@given(st.floats(1e-3, 1e9))
def test_a_number_is_seconds(seconds: float) -> None:
    assert parse_time(seconds) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3", "ten", "10 parsecs", "m10", "nan", "1,5m", True])
def test_not_a_time(text: str) -> None:
    with pytest.raises(PocketuneError, match="is not a time above 0: write for example 10m"):
        parse_time(text)


def test_planning_takes_a_share_of_the_time() -> None:
    assert make_limits("96MB", "10m") == Limits(budget=96_000_000, time=600.0)
    assert make_limits(None, 600).planning == pytest.approx(90)
    assert make_limits(None, None).planning == PLANNING_SECONDS
    assert make_limits(None, "20s").planning == pytest.approx(8)
    assert make_limits(None, "20s").training == pytest.approx(12)
    assert make_limits(None, "100s").planning == pytest.approx(30)


def test_a_budget_below_any_process_is_named() -> None:
    make_limits("40MB", None).check_process(39_000_000)
    make_limits(None, None).check_process(39_000_000)
    with pytest.raises(PocketuneError, match="budget of 39 MB is smaller than the 39 MB that"):
        make_limits("39MB", None).check_process(39_000_000)
    with pytest.raises(PocketuneError, match="larger budget: the smallest kit needs about 64 MB"):
        make_limits("39MB", None).check_process(39_000_000, 64_000_000)
