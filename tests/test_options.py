"""Options that are written once: their ranges, their defaults and who shows them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketune.errors import PocketuneError
from pocketune.options import (
    Option,
    check_options,
    documented,
    option,
    option_fields,
    takes_options,
    with_options,
)


@dataclass(frozen=True, kw_only=True)
class Drive:
    speed: float = option("How fast.", default=1.0, above=0, below=10)
    turns: int | None = option("How often.", default=None, at_least=1, unset="never")
    side: str = option("Where.", default="left", choices=("left", "right"))
    lights: bool = option("Whether they are on.", default=False)
    size: int | str = option("How large.", default=3)
    place: str = option("Where to.")
    note: str = "no option"

    def __post_init__(self) -> None:
        check_options(self)


def drive(**values: Any) -> Drive:
    return Drive(**{"place": "home", **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"speed": 0}, "speed must be above 0 and below 10, not 0"),
        ({"speed": 10}, "speed must be above 0 and below 10, not 10"),
        ({"speed": float("nan")}, "speed must be above 0 and below 10, not nan"),
        ({"speed": None}, "speed must be a number, not None"),
        ({"speed": "1"}, "speed must be a number, not '1'"),
        ({"speed": True}, "speed must be a number, not True"),
        ({"turns": 0}, "turns must be at least 1, not 0"),
        ({"turns": 1.5}, "turns must be a whole number, not 1.5"),
        ({"turns": np.float64(2)}, "turns must be a whole number"),
        ({"speed": -(10**400)}, "speed must be finite, and is too large for a float"),
        ({"speed": Fraction(10**400)}, "speed must be finite, and is too large for a float"),
        ({"place": 5}, "place must be a text, not 5"),
        ({"place": None}, "place must be a text, not None"),
        ({"lights": 1}, "lights must be True or False, not 1"),
        ({"lights": None}, "lights must be True or False, not None"),
        ({"side": "up"}, "unknown side 'up': choose one of left, right"),
    ],
)
def test_a_value_that_does_not_fit_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PocketuneError, match=message):
        drive(**values)


def test_numbers_become_pythons_own() -> None:
    made = drive(speed=np.float32(0.5), turns=np.int64(2))
    assert (type(made.speed), type(made.turns)) == (float, int)
    assert type(drive(speed=2).speed) is float
    assert drive(size="3 m").size == "3 m"  # a number or a text is left alone


def test_a_path_becomes_a_text() -> None:
    assert drive(place=Path("over", "there")).place == str(Path("over", "there"))


def test_fields_have_their_defaults_in_words() -> None:
    found = {each.name: each for each in option_fields(Drive)}
    assert "note" not in found
    assert {name: each.default_text for name, each in found.items()} == {
        "speed": "1",
        "turns": "never",
        "side": "left",
        "lights": None,
        "size": "3",
        "place": None,
    }
    assert [name for name, each in found.items() if each.is_required] == ["place"]


def test_a_dataclass_describes_its_options() -> None:
    text = documented(Drive).__doc__ or ""
    assert "    speed: How fast. Default: 1.\n" in text
    assert "note" not in text.partition("Options:")[2]


def test_some_options_are_changed() -> None:
    changed = with_options(drive(turns=3), {"turns": None, "side": "right"})
    assert changed == drive(side="right")
    with pytest.raises(PocketuneError, match="speed must be above 0"):
        with_options(drive(), {"speed": 0})
    known = "speed, turns, side, lights, size, place"
    with pytest.raises(TypeError, match=f"unknown option 'note': the options are {known}$"):
        with_options(drive(), {"note": "other"})
    with pytest.raises(TypeError, match=r"unknown option 'turn': did you mean turns\? The options"):
        with_options(drive(), {"turn": 2})


def test_a_function_shows_the_options_that_it_takes() -> None:
    @takes_options(Drive)
    def go(car: str, *, wheels: int = 4, **options: Any) -> Drive:
        """Go."""
        return Drive(**options)

    names = list(inspect.signature(go).parameters)
    assert names[:3] == ["car", "wheels", "speed"]
    assert inspect.signature(go).return_annotation == "Drive"
    inspect.signature(go).bind("a car", place="home", turns=1)
    with pytest.raises(TypeError):
        inspect.signature(go).bind("a car", tunrs=1)
    assert "    turns: How often. Default: never." in (go.__doc__ or "")
    assert "    side: Where. One of left, right. Default: left." in (go.__doc__ or "")
    assert go("a car", place="home") == drive()


@pytest.mark.parametrize(
    ("limits", "words", "allowed", "refused"),
    [
        ({}, "", [-1e9, 0, 1e9], []),
        ({"at_least": 1}, "at least 1", [1, 2], [0.99]),
        ({"at_most": 1}, "at most 1", [1, -2], [1.01]),
        ({"above": 0}, "above 0", [1e-9], [0, -1]),
        ({"below": 0}, "below 0", [-1e-9], [0, 1]),
        ({"at_least": 0, "below": 1}, "at least 0 and below 1", [0, 0.999], [-0.001, 1]),
        ({"above": 0, "at_most": 1}, "at most 1 and above 0", [1, 0.001], [0, 1.001]),
    ],
)
def test_a_range_says_in_words_what_it_allows(limits, words: str, allowed, refused) -> None:
    given = Option("How far.", **limits)
    assert given.range == words
    assert all(given.allows(value) for value in allowed)
    assert not any(given.allows(value) for value in refused)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_no_range_allows_what_is_not_finite(value: float) -> None:
    assert not Option("How far.").allows(value)


def test_a_value_beyond_all_ranges_must_be_finite() -> None:
    @dataclass(frozen=True)
    class Free:
        far: float = option("How far.", default=1.0)

        def __post_init__(self) -> None:
            check_options(self)

    with pytest.raises(PocketuneError, match="far must be finite, not inf"):
        Free(float("inf"))


def test_limits_are_checked_after_numpys_numbers_became_pythons() -> None:
    with pytest.raises(PocketuneError, match="turns must be at least 1"):
        drive(turns=np.int8(0))
    assert drive(turns=None).turns is None
