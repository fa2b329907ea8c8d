"""Plans as files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketune.errors import PocketuneError
from pocketune.planner.journal import Journal
from pocketune.planner.plan import SCHEMA, Plan
from pocketune.resumable import PLAN

from .fakes import Facts, FakeSource, asked, candidate, search

TWO = {"a": Facts(), "b": Facts(value=0.5)}


def test_a_plan_goes_through_json(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(TWO), budget=80, time=60.0)
    data = json.loads(json.dumps(plan.to_dict()))
    assert Plan.from_dict(data, "plan.json") == plan
    assert Plan.read(tmp_path) == Plan.read(tmp_path / PLAN) == plan


def test_seconds_left_are_those_of_training(tmp_path: Path) -> None:
    plan = search(tmp_path, FakeSource(TWO), time=60.0)
    assert plan.seconds_left == pytest.approx(60 - plan.seconds)
    assert search(tmp_path / "free", FakeSource(TWO)).seconds_left is None


def test_a_plan_without_a_choice_says_so() -> None:
    with pytest.raises(PocketuneError, match="has no choice: it was not finished, or nothing fits"):
        _ = Plan(asked=asked(), process=1, trials=()).chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        (json.dumps({"schema": SCHEMA + 1}), "another version of Pocketune .its schema is 4"),
        (json.dumps({"schema": SCHEMA}), "lacks the field 'asked'"),
    ],
)
def test_a_file_that_is_no_plan(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(PocketuneError, match=message):
        Plan.read(tmp_path)
    said: list[str] = []
    Journal(tmp_path, asked(), said.append)
    assert said[0].startswith("planning anew: ")


def test_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PocketuneError, match=r"none cannot be read: .*; give the folder of a plan"):
        Plan.read(tmp_path / "none")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "0.2.0"}, "another version of Pocketune"),
        ({"fingerprint": "1" * 64}, "other photos"),
        ({"settings": {"seed": 1}}, "other settings"),
        ({"classes": 4}, "other classes"),
    ],
)
def test_a_plan_for_something_else_is_made_anew(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    search(tmp_path, FakeSource(TWO))
    said: list[str] = []
    journal = Journal(tmp_path, asked(**changes), said.append)  # type: ignore[arg-type]
    assert said == [f"planning anew: {tmp_path / PLAN} was made with {words}"]
    journal.open([candidate("a")], [])
    assert journal.earlier(journal.left[0]) is None
