"""The time limit of a search, on a clock that the tests set."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from pocketune.errors import PocketuneError
from pocketune.extractor import clock as clock_module
from pocketune.extractor.clock import FEWEST, KIT, LAST, UNTIL, Clock
from pocketune.extractor.record import Forecast
from pocketune.supernet import Space

LARGEST = Forecast(
    config=Space(sizes=(64,)).largest,
    memory=1,
    step_seconds=1.0,
    macs=1000,
    training_macs=2000,
)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time in seconds, which stands still."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_without_a_limit_no_phase_has_an_end(now: SimpleNamespace) -> None:
    clock = Clock(math.inf, 1.0, began=0.0)
    now.seconds = 1e9
    assert all(math.isinf(clock.left(phase)) for phase in UNTIL)


def test_the_phases_share_what_the_kit_leaves(now: SimpleNamespace) -> None:
    clock = Clock(200.0, 1.0, began=0.0)
    clock.keep_for_kit(10.0, LARGEST, likely=500)
    assert clock.kept == 10 * (1 + KIT / 2 + LAST)
    assert clock.left("search") == 200 - clock.kept
    assert list(UNTIL.values()) == sorted(UNTIL.values())
    now.seconds = 200 - clock.kept
    assert [clock.left(phase) for phase in UNTIL] == [0.0] * len(UNTIL)


def test_earlier_processes_count(now: SimpleNamespace) -> None:
    clock = Clock(100.0, 1.0, began=0.0, before=30.0)
    now.seconds = 5.0
    assert clock.spent == 35
    assert clock.left("search") == 65


@pytest.mark.parametrize(("share", "minutes"), [(1.0, 3), (0.5, 5)])
@pytest.mark.usefixtures("now")
def test_too_little_time_for_a_kit_is_refused_with_what_is_enough(
    share: float, minutes: int
) -> None:
    needed = 10 * (1 + KIT + LAST + FEWEST)
    told = r"building a kit takes about 1:50, and what comes before it at least 0:30; set "
    with pytest.raises(PocketuneError, match=rf"{told}time={minutes}m$"):
        Clock(needed - 1, share, began=0.0).keep_for_kit(10.0, LARGEST, likely=1000)
    Clock(needed / share, share, began=0.0).keep_for_kit(10.0, LARGEST, likely=1000)
    Clock(60.0 * minutes, share, began=0.0).keep_for_kit(10.0, LARGEST, likely=1000)
