"""The search: predict, rank by frozen features, try in ever longer runs, choose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.planner.rounds import Rounds
from pocketune.planner.screening import Screening

if TYPE_CHECKING:
    from pocketune.planner.evidence import Evidence
    from pocketune.planner.plan import Plan
    from pocketune.planner.trial import Trial

MARGIN = 0.05
"""What a kit may take beyond what was predicted before it is built; candidates that were not tried
leave so much. The prediction of a kit that exists is an upper bound."""


class Search:
    """Makes a plan.

    Args:
        evidence: The evidence of the plan, which is empty.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._journal = evidence.journal

    def run(self) -> Plan:
        """The finished plan.

        Raises:
            PocketuneError: Nothing fits the budget, or no candidate could be trained.
        """
        self._journal.open(*self._evidence.source.find())
        screening = Screening(self._evidence)
        screening.run()
        while True:
            if len(self._journal.left) + len(screening.reserve) > 1:
                Rounds(self._evidence).run()
            chosen = self._choose(screening.reserve)
            if chosen is not None:
                return chosen
            if not screening.fall_back():
                raise PocketuneError(f"no candidate could be trained: {self._evidence.why_not()}")

    def _choose(self, reserve: list[str]) -> Plan | None:
        """Choose the best trial that has a kit; else one that was dropped for a better one."""
        for trials in (self._journal.left, self._back(reserve)):
            for trial in sorted(self._evidence.order(trials), key=self._is_tight):
                self._journal.put(replace(self._evidence.current(trial), dropped=None))
                kit = self._evidence.kit(trial)
                if kit is not None:
                    others = [each for each in self._journal.left if each.name != trial.name]
                    self._evidence.drop(others, f"{trial.name} {self._ahead(trial)}")
                    return self._journal.write(choice=trial.name, kit=str(kit))
        return None

    def _back(self, reserve: list[str]) -> list[Trial]:
        """Trials that were dropped for a better one, or whose run was too slow."""
        trials = self._journal.plan.trials
        return [t for t in trials if t.cost and (t.name in reserve or t.late_seconds)]

    def _is_tight(self, trial: Trial) -> bool:
        """Whether a trial was not measured, and could exceed the budget by a bad prediction."""
        budget = self._evidence.limits.budget
        measured = trial.probes or trial.name == self._journal.plan.timed
        if budget is None or measured or trial.candidate.kit is not None:
            return False
        return (1 + MARGIN) * trial.memory > budget

    def _ahead(self, trial: Trial) -> str:
        """Why a trial is chosen before others."""
        if not self._evidence.training.images:
            return "has features at least as good, and the run has no steps"
        if trial.probes:
            return "is ahead, and there was no time for a longer run"
        return "promises more, and there was no time to try it"
