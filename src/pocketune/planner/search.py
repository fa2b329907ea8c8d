"""The search: predict, rank by frozen features, try in ever longer runs, choose."""

from __future__ import annotations

import time
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from pocketune.device.memory.sizes import format_size
from pocketune.device.train.progress import format_time
from pocketune.errors import PocketuneError
from pocketune.planner.halving import FEWEST, Pace, better_half, next_round, promising
from pocketune.planner.limits import time_for
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
"""Number of candidates that are all tried, however their frozen features compare."""
LOOK_SHARE = 0.35
"""Share of the planning time after which no further group is looked at."""
PREDICTION_SHARE = 0.5
"""Share of the planning time after which no further memory is predicted."""
BEHIND = 0.05
"""Groups whose frozen features score lower than the best ones by more than this are dropped."""
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
        self._reserve: list[str] = []
        self._many = True

    def run(self) -> Plan:
        """The finished plan.

        Raises:
            PocketuneError: Nothing fits the budget, there is no time for a probe, or no candidate
                could be trained.
        """
        self._journal.open(*self._source.find())
        self._look_at_groups()
        self._predict_the_rest()
        return self._choose(self._halve())

    def _look_at_groups(self) -> None:
        """Predict the memory of the first trial of each group, and score the group's features.

        A network that is behind at one resolution is not looked at at another. With few candidates,
        none is behind.
        """
        firsts: dict[str, Trial] = {}
        for trial in self._journal.left:
            firsts.setdefault(trial.candidate.group, trial)
        several = len(self._journal.left) > 1
        self._many = len(self._journal.left) > FEW
        for first in firsts.values():
            if self._seconds_left(LOOK_SHARE) <= 0:
                self._drop(self._mates(first), "there was no time to look at it")
            elif (why := self._behind(first)) is not None:
                self._drop(self._mates(first), why)
            elif self._predict(first) and several:
                self._score_features(first)
        if not self._journal.left:
            raise PocketuneError(self._nothing())
        for trial in self._journal.left:
            if (why := self._behind(trial)) is not None:
                self._drop([trial], why)
                self._reserve.append(trial.name)
        self._journal.write()

    def _predict_the_rest(self) -> None:
        """Predict the other trials of the groups that are left, the best group first."""
        for trial in promising(self._journal.left):
            if trial.cost is not None:
                continue
            if self._seconds_left(PREDICTION_SHARE) <= 0:
                self._drop([trial], "there was no time to predict its memory")
            else:
                self._predict(trial)
        self._journal.write()

    def _predict(self, trial: Trial) -> bool:
        """Predict a trial's cost; drop it, and trials that need more, if it does not fit."""
        cost = self._known(
            trial,
            lambda earlier: earlier.cost,
            lambda: self._source.cost(trial.candidate),
            lambda trial, cost: replace(trial, cost=cost),
        )
        if cost is None:
            return False
        budget, needed = self._limits.budget, format_size(cost.memory)
        self._journal.say(f"{trial.name}: {needed} predicted")
        if budget is None or cost.memory <= budget:
            return True
        over = format_size(cost.memory - budget)
        self._drop([self._current(trial)], f"needs {needed}, {over} over the budget")
        mates = self._mates(trial)
        if mates[0].name == trial.name:
            self._drop(mates[1:], f"needs more than {trial.name}, which takes {needed}")
        return False

    def _score_features(self, first: Trial) -> None:
        """Score the features of a group; without a score, its trials are tried all the same."""
        earlier = self._journal.earlier(first)
        try:
            head = (earlier and earlier.head) or self._source.head(first.candidate)
        except PocketuneError as error:
            self._journal.say(f"{_title(first)}: {error}")
            return
        free = replace(head, seconds=0.0)
        for trial in self._mates(first):
            self._journal.put(replace(trial, head=head if trial.name == first.name else free))
        self._journal.write()
        self._journal.say(f"{_title(first)}: {head.score} before training")

    def _behind(self, trial: Trial) -> str | None:
        """Why a trial's network is too far behind others; None if it is not."""
        if not self._many:
            return None
        scored = [each for each in self._journal.plan.trials if each.head is not None]
        best = max(scored, key=_features, default=None)
        mine = [each for each in scored if _network(each) == _network(trial)]
        if trial.head is not None:  # its own resolution
            mine = [trial]
        if best is None or not mine or max(map(_features, mine)) >= _features(best) - BEHIND:
            return None
        own = max(mine, key=_features)
        return f"its frozen features give {_words(own)}, and {_words(best)} with {_title(best)}"

    def _nothing(self) -> str:
        """Why there is no candidate, and the smallest budget that gives one."""
        trials = [trial for trial in self._journal.plan.trials if trial.cost]
        if not trials or self._limits.budget is None:
            return f"there is nothing to choose from: {self._why_not()}"
        needed = format_size(smallest_budget(self._journal.plan) or 0)
        least = min(trials, key=lambda trial: trial.memory)
        return (
            f"nothing fits the budget of {format_size(self._limits.budget)}; the smallest that "
            f"something fits is {needed}, for {least.name}"
        )

    def _mates(self, trial: Trial) -> list[Trial]:
        """All trials of a group."""
        group = trial.candidate.group
        return [each for each in self._journal.plan.trials if each.candidate.group == group]

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
        if not self._journal.left and self._reserve:
            back = [replace(t, dropped=None) for t in self._journal.plan.trials if self._held(t)]
            self._reserve.clear()
            self._journal.put(*back)
            return self._halve()
        if not self._journal.left:
            raise PocketuneError(f"no candidate could be trained: {self._why_not()}")
        best, *others = promising(self._journal.left)
        ahead = f"{best.name} is ahead, and there was no time for a longer run"
        self._drop(others, ahead if best.probes else "there was no time to try it")
        return best

    def _held(self, trial: Trial) -> bool:
        """Whether a trial that was behind can still be tried."""
        return trial.name in self._reserve and trial.cost is not None

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
            return Pace.of(timing, trial.cost, self._current(trial).built_seconds or 0.0)
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
        """Why a limit of time is too short, and the shortest that is not."""
        share, enough = self._limits.planning, ceil(time_for(self._journal.plan.seconds))
        run = f"the shortest run of {trial.name} takes {needed:.0f} s"
        if self._limits.time is None:
            return f"planning may take {share:.0f} s, and {run}; name a kit"
        return (
            f"of a time of {self._limits.time:.0f} s, planning may take {share:.1f} s to leave the "
            f"rest for training, and {run}; give at least {enough} s, or name a kit"
        )


def _steps(trial: Trial, images: int) -> int:
    return max(1, images // trial.candidate.step_images)


def _title(trial: Trial) -> str:
    """What has these features: a kit by its name, or a network at a resolution."""
    return trial.name if trial.candidate.kit else trial.candidate.group


def _features(trial: Trial) -> float:
    return trial.head.score.value if trial.head else 0.0


def _words(trial: Trial) -> str:
    return str(trial.head.score) if trial.head else ""


def _network(trial: Trial) -> tuple[str, str | None]:
    """What resolutions of one network have in common; a kit is a network of its own."""
    candidate = trial.candidate
    return (candidate.group, None) if candidate.kit else (str(candidate.network), candidate.weights)
