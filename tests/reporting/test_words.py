"""Configurations and figures in words."""

import pytest

from pocketune.reporting.words import duration, gain, interval, listing
from pocketune.tasks import Score


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.000443, "0.44 ms"),
        (0.0099, "9.9 ms"),
        (0.01, "10 ms"),
        (0.5, "500 ms"),
        (2.04, "2.0 s"),
        (9.99, "10 s"),
        (59.6, "1 min"),
        (3600, "1 h"),
    ],
)
def test_durations_have_the_units_that_people_use(seconds, text):
    assert duration(seconds) == text


def test_long_lists_are_cut():
    assert listing(list("abcdefgh")) == "a, b, c, d, e, f and 2 others"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing(["a"]) == "a"


def test_a_start_that_stays_the_best_is_named():
    score = Score("accuracy", 0.5, 1.0)
    assert "the result is the start itself" in gain(score, score)
    assert "-10.0 points" in gain(Score("accuracy", 0.6, 1.0), score)
    assert gain(Score("error", 2.0, 1.0, ".3f"), Score("error", 1.5, 1.0, ".3f")).endswith("-0.5.")


def test_the_interval_of_a_share_is_wilson_s():
    # 95 of 100: the interval of Wilson (1927) is 0.8882 to 0.9785
    assert interval(0.95, 100) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert interval(1.0, 20) == pytest.approx((0.8389, 1.0), abs=1e-4)
