"""The report of a plan."""

import json
from dataclasses import replace

import pytest

import pocketune
from pocketune.device.machine import Machine
from pocketune.errors import PocketuneError
from pocketune.planner.candidate import Candidate, Cost
from pocketune.planner.limits import Limits
from pocketune.planner.plan import Asked, LeftOut, Plan
from pocketune.planner.trial import HeadScore, Probe, Trial
from pocketune.reporting.plan import plan_page
from pocketune.tasks import Score

from ..tasks.regression import Regression
from .html import check_alone

NASTY = "<b>kit</b> & 花"
METHODS = ("last", "blocks", "mobiletl", "tinytl", "norm", "bias", "full")


def candidate(name: str, method: str) -> Candidate:
    return Candidate(
        name=name,
        group="g",
        kit=None,
        network={"name": "mobilenet_v2", "width": 0.35},
        weights=None,
        method={"name": method},
        size=96,
        batch=8,
        accumulate=1,
        frozen_bits=8,
    )


def trial(number: int, method: str, *, probed: bool, dropped: str | None) -> Trial:
    score = Score("accuracy", 0.5 + 0.05 * number, 1.0)
    cost = Cost(
        optimizer="adam",
        memory=(60 + 9 * number) * 1_000_000,
        least_memory=(60 + 9 * number) * 1_000_000,
        step_seconds=0.02 * (number + 1),
        step_flops=(number + 1) * 200_000_000,
        parameters=1000 * (number + 1),
        seconds=0.1,
    )
    probe = Probe(
        steps=40,
        score=score,
        peak=cost.memory + 10,
        step_seconds=cost.step_seconds,
        seconds=3.0,
        photos=120,
    )
    return Trial(
        candidate=candidate(f"{NASTY} {method}", method),
        cost=cost,
        heads=(HeadScore(score=score, seconds=1.0, photos=240),),
        probes=(probe,) if probed else (),
        dropped=dropped,
    )


def make_plan(**changes) -> Plan:
    trials = tuple(
        trial(
            number,
            method,
            probed=number < 4,
            dropped=None if number == 3 else f"needs more than the budget, number {number}",
        )
        for number, method in enumerate(METHODS)
    )
    asked = Asked(
        version="0.1.0",
        machine=Machine("Linux", "a processor", 2, "3.11"),
        photos="<i>photos</i>",
        fingerprint="f" * 64,
        training=800,
        validation=200,
        classes=5,
        task="classification",
        limits=Limits(budget=96_000_000, time=600.0),
        settings={"seed": 0},
    )
    made = Plan(
        asked=asked,
        process=40_000_000,
        trials=trials,
        left_out=(LeftOut(name="old.zip", reason="it was written by an older version"),),
        choice=trials[3].name,
        kit="kit",
    )
    return replace(made, **changes)


@pytest.fixture
def file(tmp_path):
    make_plan().write(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_the_choice_and_every_candidate_with_its_reason_are_told(file):
    page = plan_page(file)
    said = " ".join(page.summary)
    assert f"{NASTY} tinytl was chosen; it reached accuracy 65.0%" in said
    assert "7 candidates considered and 4 tried" in said
    assert "The runner-up is" in said
    ((_, table),) = page.sections[1].tables
    outcomes = {row[0]: row[-1] for row in table.rows}
    assert outcomes.pop(f"{NASTY} tinytl") == "chosen"
    assert outcomes.pop("old.zip") == "it was written by an older version"
    assert len(outcomes) == 6 and all("needs more" in reason for reason in outcomes.values())
    assert table.rows[0][0] == f"{NASTY} tinytl"


def test_attributes_are_not_called_classes(file):
    asked = replace(make_plan().asked, task="attributes")
    make_plan(asked=asked).write(file)
    page = plan_page(file)
    assert "with 5 attributes" in page.summary[0]
    assert ("task", "attributes, 5 attributes") in page.sections[-1].facts


def test_each_candidate_with_a_score_is_a_bubble(file):
    chart = plan_page(file).sections[0].charts[0]
    assert len(chart.table.rows) == 7
    assert chart.svg.count("budget 96 MB") == 1


def test_the_best_of_a_task_of_errors_have_the_smallest(file):
    """Of many bubbles, only the best have names; here, more memory gives larger scores."""
    assert "tinytl" in plan_page(file).sections[0].charts[0].svg
    asked = replace(make_plan().asked, task=Regression.name)
    make_plan(asked=asked).write(file)
    chart = plan_page(file).sections[0].charts[0].svg
    assert "last" in chart and "tinytl" not in chart


def test_a_choice_that_was_only_predicted_says_so(file):
    untried = tuple(replace(each, probes=()) for each in make_plan().trials)
    make_plan(trials=untried).write(file)
    page = plan_page(file)
    said = " ".join(page.summary)
    assert "none tried, so the choice rests on prediction" in said and "runner-up" not in said
    assert page.tiles[0].detail == "before training"


def test_a_plan_without_a_choice_names_the_smallest_budget(file):
    make_plan(choice=None, kit=None).write(file)
    said = " ".join(plan_page(file).summary)
    assert "Nothing was chosen" in said and "60 MB" in said


def test_a_plan_before_its_first_score_has_no_bubbles(file):
    bare = tuple(Trial(candidate=candidate(name, "last")) for name in "ab")
    make_plan(trials=bare, choice=None, kit=None).write(file)
    page = plan_page(file)
    assert [section.title for section in page.sections] == ["Candidates", "What was asked"]
    assert {row[-1] for row in page.sections[0].tables[0][1].rows[:2]} == {"not decided"}


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "file"])
def test_the_page_needs_nothing_else(file, whole):
    written = pocketune.report(file.parent if whole else file)
    assert written == file.parent / "report.html"
    read = check_alone(written.read_text(encoding="utf-8"))
    assert f"{NASTY} tinytl" in " ".join(read.text)


def test_a_damaged_plan_is_refused(file):
    file.write_text(json.dumps({"schema": 1}))
    with pytest.raises(PocketuneError):
        pocketune.report(file)
