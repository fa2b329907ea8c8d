"""The search: predict, rank by frozen features, try in ever longer runs, choose."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pocketune.device.memory.sizes import format_size
from pocketune.device.train.progress import format_time
from pocketune.errors import PocketuneError
from pocketune.planner.halving import FEWEST, Pace, better_half, next_round, promising
from pocketune.planner.outlook import smallest_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pocketune.planner.journal import Journal
    from pocketune.planner.plan import Plan
    from pocketune.planner.source import Source
    from pocketune.planner.trial import Probe, Trial

T = TypeVar("T")

FEW = 4
"""Number of candidates that are tried at once, without a ranking by frozen features."""
FEATURES_SHARE = 1 / 3
"""Share of the planning time for the ranking by frozen features."""
PATIENCE = 3.0
"""A probe is stopped after this many times its expected seconds."""
GRACE = 20.0
"""Seconds that a probe gets on top."""


class Search:
    """Makes a plan.

    Args:
        source: The candidates, and how they are measured.
        journal: The journal of the plan.
        images: Images that a whole run trains on.
        clock: Seconds, for measuring what preparations take.
    """

    def __init__(
        self,
        source: Source,
        journal: Journal,
        images: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._journal = journal
        self._images = images
        self._clock = clock
        self._limits = journal.plan.asked.limits
        self._kits: dict[str, Path] = {}

    def run(self) -> Plan:
        """The finished plan.

        Raises:
            PocketuneError: Nothing fits the budget, there is no time for a probe, or no candidate
                could be trained.
        """
        self._journal.open(*self._source.find())
        self._predict()
        self._drop_what_cannot_fit()
        self._rank()
        return self._choose(self._halve())

    def _predict(self) -> None:
        for trial in self._journal.left:
            cost = self._known(
                trial,
                lambda earlier: earlier.cost,
                lambda trial=trial: self._source.cost(trial.candidate),  # type: ignore[misc]
                lambda trial, cost: replace(trial, cost=cost),
            )
            if cost is not None:
                self._journal.say(f"{trial.name}: {format_size(cost.memory)} predicted")
        self._journal.write()

    def _drop_what_cannot_fit(self) -> None:
        budget, trials = self._limits.budget, self._journal.left
        if not trials:
            raise PocketuneError(f"there is nothing to choose from: {self._why_not()}")
        if budget is None:
            return
        for trial in trials:
            if trial.memory > budget:
                over = format_size(trial.memory - budget)
                why = f"needs {format_size(trial.memory)}, {over} over the budget"
                self._journal.put(trial.drop(why))
        self._journal.write()
        if not self._journal.left:
            needed = format_size(smallest_budget(self._journal.plan) or 0)
            least = min(trials, key=lambda trial: trial.memory)
            raise PocketuneError(
                f"nothing fits the budget of {format_size(budget)}; the smallest that something "
                f"fits is {needed}, for {least.name}"
            )

    def _rank(self) -> None:
        """Measure the frozen features of each group, unless there are few candidates anyway."""
        if len(self._journal.left) <= FEW:
            return
        groups: dict[str, Trial] = {}
        for trial in promising(self._journal.left):
            groups.setdefault(trial.candidate.group, trial)
        for group, first in groups.items():
            if self._seconds_left(FEATURES_SHARE) <= 0:
                break
            head = self._known(
                first,
                lambda earlier: earlier.head,
                lambda first=first: self._source.head(first.candidate),  # type: ignore[misc]
                lambda trial, head: replace(trial, head=head),
            )
            if head is None:
                continue
            free = replace(head, seconds=0.0)
            same = [t for t in self._journal.plan.trials if t.candidate.group == group]
            others = [replace(t, head=free) for t in same if t.name != first.name]
            self._journal.put(*others)
            self._journal.say(f"{first.name}: {head.score} before training")
        self._journal.write()

    def _halve(self) -> Trial:
        """Probe and drop until one trial is left."""
        left = self._journal.left
        pace = self._pace(promising(left)) if len(left) > 1 or self._limits.time else None
        left = self._journal.left  # the first steps may have failed
        while pace is not None and len(left) > 1:
            planned = next_round(left, pace, self._seconds_left(), self._images)
            if len(planned.trials) < 2:
                break
            self._drop(planned.out, "there was no time to try it")
            for number, trial in enumerate(planned.trials, 1):
                place = f"{number} of {len(planned.trials)}"
                self._probe(trial, planned.images, pace, place)
            left = self._halved(planned.images)
        if not self._journal.left:
            raise PocketuneError(f"no candidate could be trained: {self._why_not()}")
        best, *others = promising(self._journal.left)
        ahead = f"{best.name} is ahead, and there was no time for a longer run"
        self._drop(others, ahead if best.probes else "there was no time to try it")
        return best

    def _pace(self, trials: list[Trial]) -> Pace | None:
        """The pace of this machine, from a few steps of the first trial that trains.

        Raises:
            PocketuneError: There is no time for it.
        """
        for trial in trials:
            kit = self._kit(trial)
            if kit is None or trial.cost is None:
                continue
            left = self._seconds_left()
            timing = self._timing(trial, kit, left)
            if timing is None:
                continue
            self._journal.write(timing=timing, timed=trial.name)
            if timing.seconds > left:
                raise PocketuneError(self._no_time(trial, timing.seconds))
            return Pace.of(timing, trial.cost)
        return None

    def _timing(self, trial: Trial, kit: Path, left: float) -> Probe | None:
        """A few steps of a trial, recalled or measured; None drops the trial."""
        recalled = self._journal.earlier_timing(trial)
        if recalled is not None:
            return recalled
        earlier = self._journal.earlier(trial)
        if earlier is not None and earlier.failed_seconds is not None:
            self._fail(trial, earlier.dropped or "", earlier.failed_seconds)
            return None
        self._journal.say(f"timing {trial.name}")
        steps = _steps(trial, min(FEWEST, self._images))
        began = self._clock()
        try:
            return self._source.probe(trial.candidate, kit, steps, max(0.0, left) + GRACE)
        except PocketuneError as error:
            self._fail(trial, str(error), self._clock() - began)
            self._journal.write()
            return None

    def _halved(self, images: int) -> list[Trial]:
        """Drop the worse half of a round; all but the best if its runs were whole runs."""
        kept, worse = better_half(self._journal.left)
        if images >= self._images:
            kept, worse = kept[:1], [*kept[1:], *worse]
        if kept:
            self._drop(worse, f"{kept[0].name} reached {kept[0].score} in as many steps")
        return kept

    def _probe(self, trial: Trial, images: int, pace: Pace, place: str) -> None:
        steps = _steps(trial, images)
        kit = self._kit(trial)
        if kit is None:
            return
        trial = self._current(trial)
        number, expected = len(trial.probes), pace.seconds(trial, images)
        left = format_time(max(0.0, self._seconds_left()))
        self._journal.say(f"trying {place}: {trial.name}, {steps} steps ({left} of planning left)")

        def recalled(earlier: Trial) -> Probe | None:
            again = len(earlier.probes) > number and earlier.probes[number].steps == steps
            return earlier.probes[number] if again else None

        self._known(
            trial,
            recalled,
            lambda: self._source.probe(trial.candidate, kit, steps, PATIENCE * expected + GRACE),
            lambda trial, probe: trial.probed(probe),
        )

    def _kit(self, trial: Trial) -> Path | None:
        """The kit of a trial; building it counts as planning."""
        name = trial.name
        if name not in self._kits:
            began = self._clock()
            try:
                self._kits[name] = self._source.kit(trial.candidate)
            except PocketuneError as error:
                self._fail(trial, str(error), self._clock() - began)
                return None
            earlier = self._journal.earlier(trial)
            seconds = earlier.built_seconds if earlier else None
            built = self._clock() - began if seconds is None else seconds
            self._journal.put(replace(self._current(trial), built_seconds=built))
            self._journal.write()
        return self._kits[name]

    def _choose(self, trial: Trial) -> Plan:
        kit = self._kit(trial)
        if kit is None:
            raise PocketuneError(f"no kit of {trial.name} could be built: {self._why_not()}")
        return self._journal.write(choice=trial.name, kit=str(kit))

    def _known(
        self,
        trial: Trial,
        recall: Callable[[Trial], T | None],
        measure: Callable[[], T],
        add: Callable[[Trial, T], Trial],
    ) -> T | None:
        """A piece of evidence, recalled or measured; None drops the trial."""
        earlier = self._journal.earlier(trial)
        found = recall(earlier) if earlier else None
        if found is None and earlier is not None and earlier.failed_seconds is not None:
            self._fail(trial, earlier.dropped or "", earlier.failed_seconds)
            return None
        if found is not None:
            self._journal.put(add(self._current(trial), found))
            return found
        began = self._clock()
        try:
            found = measure()
        except PocketuneError as error:
            self._fail(trial, str(error), self._clock() - began)
            self._journal.write()
            return None
        self._journal.put(add(self._current(trial), found))
        self._journal.write()
        return found

    def _current(self, trial: Trial) -> Trial:
        return next(each for each in self._journal.plan.trials if each.name == trial.name)

    def _fail(self, trial: Trial, reason: str, seconds: float) -> None:
        self._journal.say(f"{trial.name} is left out: {reason}")
        failed = replace(self._current(trial), failed_seconds=seconds)
        self._journal.put(failed.drop(reason))

    def _drop(self, trials: Iterable[Trial], reason: str) -> None:
        self._journal.put(*(trial.drop(reason) for trial in trials))

    def _seconds_left(self, share: float = 1.0) -> float:
        return share * self._limits.planning - self._journal.plan.seconds

    def _why_not(self) -> str:
        plan = self._journal.plan
        reasons = [f"{t.name}: {t.dropped}" for t in plan.trials if t.failed_seconds is not None]
        reasons += [f"{each.name}: {each.reason}" for each in plan.left_out]
        return "; ".join(reasons[:3]) or "there are no kits"

    def _no_time(self, trial: Trial, needed: float) -> str:
        limits, spent = self._limits, self._journal.plan.seconds
        share = f"{limits.planning:.0f} s are for planning"
        if limits.time is not None:
            share = f"of a time of {limits.time:.0f} s, {limits.planning:.1f} s are for planning"
        enough = spent / limits.planning * (limits.time or 0)
        advice = f"give at least {enough:.0f} s, or name a kit" if enough else "name a kit"
        return f"{share}, and the shortest run of {trial.name} takes {needed:.1f} s; {advice}"


def _steps(trial: Trial, images: int) -> int:
    return max(1, images // trial.candidate.step_images)
