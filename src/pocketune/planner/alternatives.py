"""What a plan says besides its choice: runners-up, the Pareto front, other budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.device.memory.sizes import format_size
from pocketune.planner.limits import whole_megabytes

if TYPE_CHECKING:
    from pocketune.planner.plan import Plan
    from pocketune.planner.trial import Trial


def runners_up(plan: Plan) -> tuple[Trial, ...]:
    """The trials that were measured and not chosen, the best first.

    A trial of more probes stayed in the search for longer and comes first.
    """
    others = [trial for trial in plan.trials if trial.probes and trial.name != plan.choice]
    return tuple(sorted(others, key=lambda t: (-len(t.probes), *(-key for key in t.rank))))


def pareto_front(plan: Plan) -> tuple[Trial, ...]:
    """The measured trials that no other one beats in score, peak memory and time of a step at once.

    They are ordered by memory. Trials that were not measured have no place on the front, and
    neither have those that do not fit the budget.
    """
    measured = [trial for trial in plan.trials if trial.probes and trial.score is not None]
    front = [t for t in measured if not any(_beats(other, t) for other in measured)]
    return tuple(sorted(front, key=lambda trial: trial.memory))


def _beats(one: Trial, other: Trial) -> bool:
    mine, theirs = _goals(one), _goals(other)
    return all(a >= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def _goals(trial: Trial) -> tuple[float, float, float]:
    return trial.rank[0], -trial.memory, -trial.step_seconds


def too_large(plan: Plan) -> tuple[Trial, ...]:
    """The trials whose predicted memory exceeds the budget, the smallest first."""
    budget = plan.asked.limits.budget
    if budget is None:
        return ()
    large = [trial for trial in plan.trials if trial.cost and trial.cost.memory > budget]
    return tuple(sorted(large, key=lambda trial: trial.memory))


def with_more(plan: Plan) -> Trial | None:
    """The trial that the next larger budget adds; None if every trial fits.

    Trials whose frozen features score below the choice's are passed over, since their network or
    their resolution is a worse start.
    """
    chosen = plan.chosen.head
    for trial in too_large(plan):
        if chosen is None or trial.head is None or trial.head.score.value >= chosen.score.value:
            return trial
    return None


def with_less(plan: Plan) -> Trial | None:
    """The best measured trial that takes less memory than the choice; None if there is none."""
    smaller = [t for t in runners_up(plan) if needed(t) < needed(plan.chosen)]
    return max(smaller, key=lambda trial: (len(trial.probes), trial.rank), default=None)


def needed(trial: Trial) -> int:
    """The budget that a run of the trial is admitted with: its prediction, above its peak."""
    return trial.cost.memory if trial.cost else trial.memory


def smallest_budget(plan: Plan) -> int | None:
    """The smallest budget, in whole megabytes, that some candidate fits; None without any cost.

    Only candidates whose memory was predicted count. Where none of them fits the budget, those that
    take least were.
    """
    known = [trial.cost.least_memory for trial in plan.trials if trial.cost]
    return whole_megabytes(min(known)) if known else None


def sentences(plan: Plan) -> list[str]:
    """What other budgets would buy, a sentence each."""
    told = []
    if (more := with_more(plan)) is not None:
        told.append(f"with {_budget(more.memory)}: {more.name} would fit too{_start(more)}")
    if (less := with_less(plan)) is not None:
        told.append(f"with {_budget(needed(less))}: {less.name}, {less.score}")
    return told


def _start(trial: Trial) -> str:
    return f" (its frozen features give {trial.head.score})" if trial.head else ""


def _budget(memory: int) -> str:
    return format_size(whole_megabytes(memory))
