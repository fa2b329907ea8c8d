"""The report of a plan: the choice and why, what memory buys, and every candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pocketune
from pocketune.device.memory.sizes import format_size
from pocketune.errors import counted
from pocketune.kit.titles import full_title
from pocketune.planner.alternatives import runners_up, sentences, smallest_budget
from pocketune.planner.plan import Plan
from pocketune.reporting.charts.bubbles import Bubble, bubble_chart
from pocketune.reporting.page import Page, Section, Tile
from pocketune.reporting.words import duration
from pocketune.tasks import task_named
from pocketune.tasks.base import numbered
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pocketune.planner.plan import Asked
    from pocketune.planner.trial import Trial


def plan_page(path: Path) -> Page:
    """Everything that a report says about a plan.

    Args:
        path: The file of the plan, or its folder.

    Raises:
        PocketuneError: The file cannot be read, is damaged or of another version.
    """
    plan = Plan.read(path)
    asked = plan.asked
    return Page(
        title=f"{asked.photos}: what to train",
        subtitle=f"a plan {_limits(plan)}",
        summary=tuple(_summary(plan)),
        tiles=tuple(_tiles(plan)),
        sections=(
            *_front(plan),
            Section(
                title="Candidates",
                tables=(("All candidates", _candidates(plan)),),
                unfolded=True,
            ),
            _asked(plan),
        ),
        version=pocketune.__version__,
    )


def _learned(asked: Asked) -> str:
    """What the photos are labeled with."""
    return task_named(asked.task).counted(asked.classes)


def _limits(plan: Plan) -> str:
    limits = plan.asked.limits
    memory = f"within {format_size(limits.budget)}" if limits.budget else "without a memory limit"
    return f"{memory} and {duration(limits.time)}" if limits.time else memory


def _summary(plan: Plan) -> Iterator[str]:
    asked, trials = plan.asked, plan.trials
    photos = f"{asked.training:,} photos in {asked.photos} with {_learned(asked)}"
    if plan.choice is None:
        yield f"Nothing was chosen for {photos}: the plan was not finished, or nothing fits."
        if (least := smallest_budget(plan)) is not None:
            yield f"The smallest budget that a candidate fits is {format_size(least)}."
        return
    chosen = plan.chosen
    score = f"; it reached {chosen.score} in its last short run" if chosen.probes else ""
    yield (
        f"For {photos}, {chosen.name} was chosen{score}. It takes {format_size(chosen.memory)} of "
        f"memory and {duration(chosen.step_seconds)} a step."
    )
    tried = sum(bool(trial.probes) for trial in trials)
    known = f"{tried:,} tried" if tried else "none tried, so the choice rests on prediction"
    considered = f"{counted(len(trials), 'candidate')} considered"
    yield f"{considered} and {known}, in {duration(plan.seconds)}."
    others = runners_up(plan)
    if others and others[0].score is not None:
        yield f"The runner-up is {others[0].name}, {others[0].score}."
    yield from (f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences(plan))


def _tiles(plan: Plan) -> Iterator[Tile]:
    if plan.choice is not None:
        chosen = plan.chosen
        if chosen.score is not None:
            score = chosen.score
            source = "in its last short run" if chosen.probes else "before training"
            yield Tile(score.name, f"{score.value:{score.style}}", source)
        budget = plan.asked.limits.budget
        limit = f"of {format_size(budget)} allowed" if budget else "no budget"
        yield Tile("peak memory", format_size(chosen.memory), limit)
        yield Tile("a step", duration(chosen.step_seconds))
    yield Tile("candidates", f"{len(plan.trials):,}")
    left = plan.seconds_left
    rest = f"{duration(left)} left for training" if left is not None else ""
    yield Tile("planning", duration(plan.seconds), rest)


def _front(plan: Plan) -> Iterator[Section]:
    known = [t for t in plan.trials if t.score is not None and t.memory and t.cost]
    if known:
        bubbles = [_bubble(trial, trial.name == plan.choice) for trial in known]
        score = known[0].score
        assert score is not None
        asked = plan.asked
        chart = bubble_chart(
            bubbles,
            metric=score.name,
            style=score.style,
            budget=asked.limits.budget,
            larger_is_better=task_named(asked.task)(numbered(asked.classes)).larger_is_better,
        )
        text = (
            "Candidates with a score: of their longest short run, or else of a classifier on their "
            "frozen features.",
        )
        yield Section(title="Memory and quality", text=text, charts=(chart,))


def _bubble(trial: Trial, chosen: bool) -> Bubble:
    assert trial.score is not None
    assert trial.cost is not None
    return Bubble(
        name=trial.name,
        peak=trial.memory,
        value=trial.score.value,
        flops=trial.cost.step_flops,
        group="short run" if trial.probes else "frozen features only",
        chosen=chosen,
    )


def _candidates(plan: Plan) -> Table:
    """Every candidate; the choice first, then those that stayed longest."""
    others = runners_up(plan)
    first = [trial for trial in plan.trials if trial.name == plan.choice]
    rest = [trial for trial in plan.trials if trial not in first and trial not in others]
    rows = [_row(trial, trial.name == plan.choice) for trial in (*first, *others, *rest)]
    rows += [(each.name, *["-"] * 6, each.reason) for each in plan.left_out]
    titles = ("candidate", "score", "steps", "peak", "a step", "GFLOPs", "trained", "outcome")
    return Table(titles, tuple(rows))


def _row(trial: Trial, chosen: bool) -> tuple[str, ...]:
    cost = trial.cost
    return (
        trial.name,
        f"{trial.score.value:{trial.score.style}}" if trial.score else "-",
        f"{trial.probes[-1].steps:,}" if trial.probes else "-",
        format_size(trial.memory) if trial.memory else "-",
        duration(trial.step_seconds) if trial.step_seconds else "-",
        f"{cost.step_flops / 1e9:,.2f}" if cost else "-",
        f"{cost.parameters:,}" if cost else "-",
        "chosen" if chosen else trial.dropped or "not decided",
    )


def _asked(plan: Plan) -> Section:
    asked = plan.asked
    facts = [
        ("photos", f"{asked.photos} ({asked.fingerprint[:12]})"),
        ("training and validation", f"{asked.training:,} and {asked.validation:,} photos"),
        ("task", f"{asked.task}, {_learned(asked)}"),
        ("limits", _limits(plan)),
        ("seed", str(asked.settings.get("seed"))),
        ("pocketune", asked.version),
        ("machine", f"{asked.machine.cores} cores of {asked.machine.processor}"),
        ("Python", asked.machine.python),
    ]
    if plan.choice is not None:
        candidate = plan.chosen.candidate
        facts += [
            ("network of the choice", full_title(candidate.network)),
            ("method of the choice", full_title(candidate.method)),
            ("optimizer of the choice", plan.chosen.optimizer),
            ("images", f"{candidate.size} px, batch {candidate.batch} x {candidate.accumulate}"),
        ]
    return Section(title="What was asked", facts=tuple(facts))
