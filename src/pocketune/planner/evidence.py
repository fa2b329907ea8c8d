"""Evidence of trials: recalled from a plan that was stopped, or gathered and written."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pocketune.errors import PocketuneError
from pocketune.planner.expectation import Training
from pocketune.planner.halving import promising
from pocketune.planner.probe import TooSlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pocketune.data.images.cost import Decoding
    from pocketune.planner.journal import Journal
    from pocketune.planner.source import Source
    from pocketune.planner.trial import Length, Probe, Trial

T = TypeVar("T")


class Evidence:
    """What is known of the trials of a plan, and the time that is left to learn more.

    Args:
        source: The candidates, and how each is predicted, ranked and built.
        probe: Makes a short run of a trial's kit; see `PlanContext.probe`.
        journal: The journal of the plan.
        images: Images that a whole run trains on.
        decoding: What decoding the photos takes, for a size of the images.
        clock: Seconds, for measuring what preparations take.

    Attributes:
        limits: The limits of the plan.
        training: The training that follows.
    """

    def __init__(
        self,
        source: Source,
        probe: Callable[[Trial, Path, Length], Probe],
        journal: Journal,
        images: int,
        decoding: Callable[[int], Decoding | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source = source
        self.probe = probe
        self.journal = journal
        self.decoding = decoding
        self.clock = clock
        self.limits = journal.plan.asked.limits
        self.training = Training(self.limits.training, images)
        self._kits: dict[str, Path] = {}

    def known(
        self,
        trial: Trial,
        recall: Callable[[Trial], T | None],
        measure: Callable[[], T],
        add: Callable[[Trial, T], Trial],
    ) -> T | None:
        """A piece of evidence, recalled or measured; None drops the trial."""
        earlier = self.journal.earlier(trial)
        found = recall(earlier) if earlier else None
        if found is not None:
            self.journal.put(add(self.current(trial), found))
            return found
        if self.failed_earlier(trial):
            return None
        began = self.clock()
        try:
            found = measure()
        except PocketuneError as error:
            self.fail(trial, error, self.clock() - began)
            return None
        self.journal.put(add(self.current(trial), found))
        self.journal.write()
        return found

    def kit(self, trial: Trial) -> Path | None:
        """The kit of a trial; building it counts as planning. None drops the trial."""
        if trial.name in self._kits:
            return self._kits[trial.name]
        earlier = self.journal.earlier(trial)
        seconds = earlier.built_seconds if earlier else None
        if seconds is None and self.failed_earlier(trial):
            return None
        began = self.clock()
        try:
            kit = self.source.kit(trial.candidate, trial.optimizer)
        except PocketuneError as error:
            self.fail(trial, error, self.clock() - began)
            return None
        if seconds is None:
            seconds = self.clock() - began
        self._kits[trial.name] = kit
        self.journal.put(replace(self.current(trial), built_seconds=seconds))
        self.journal.write()
        return kit

    def fail(self, trial: Trial, error: PocketuneError, seconds: float) -> None:
        """Drop a trial whose kit, prediction or run failed."""
        self.journal.say(f"{trial.name}: {error}")
        failed = self.current(trial)
        if isinstance(error, TooSlow):
            failed = replace(failed, late_seconds=seconds)
        else:
            failed = replace(failed, failed_seconds=seconds)
        self.journal.put(failed.drop(str(error)))
        self.journal.write()

    def failed_earlier(self, trial: Trial) -> bool:
        """Whether a trial failed in the plan that was stopped; then it is dropped again."""
        earlier = self.journal.earlier(trial)
        if earlier is None:
            return False
        for kind, seconds in (
            (PocketuneError, earlier.failed_seconds),
            (TooSlow, earlier.late_seconds),
        ):
            if seconds is not None:
                # the choice is dropped no more, though a run of it may have failed
                self.fail(trial, kind(earlier.dropped or "a run of it failed"), seconds)
                return True
        return False

    def drop(self, trials: Iterable[Trial], reason: str) -> None:
        """Drop trials for a reason."""
        self.journal.put(*(trial.drop(reason) for trial in trials))

    def current(self, trial: Trial) -> Trial:
        """The trial as it is in the plan now."""
        return next(each for each in self.journal.plan.trials if each.name == trial.name)

    def seconds_left(self, share: float = 1.0) -> float:
        """Seconds until a share of the time for planning is over, preparations apart."""
        plan = self.journal.plan
        own = max(0.0, self.limits.planning - plan.preparing)
        return share * own - (plan.seconds - plan.preparing)

    def order(self, trials: Iterable[Trial]) -> list[Trial]:
        """Trials in the order of what they promise."""
        return promising(list(trials), self.training)

    def why_not(self) -> str:
        """Why no candidate could be tried."""
        plan = self.journal.plan
        reasons = [f"{t.name}: {t.dropped}" for t in plan.trials if t.failed_seconds is not None]
        reasons += [f"{each.name}: {each.reason}" for each in plan.left_out]
        return "; ".join(reasons[:3]) or "there are no kits"
