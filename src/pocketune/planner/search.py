"""The search: predict, rank by frozen features, try in ever longer runs, choose."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pocketune.device.memory.sizes import format_size
from pocketune.device.train.progress import format_time
from pocketune.errors import PocketuneError
from pocketune.planner.halving import FEWEST, Pace, better_half, next_round, promising
from pocketune.planner.outlook import smallest_budget, too_large
from pocketune.planner.probe import PHOTOS, TooSlow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pocketune.planner.journal import Journal
    from pocketune.planner.plan import Plan
    from pocketune.planner.source import Source
    from pocketune.planner.trial import Probe, Trial

T = TypeVar("T")

FEW = 4
"""Number of candidates that are tried in short runs."""
OF_ONE = 2
"""Number of these that may be of one network, unless there are too few others."""
LOOK_SHARE = 0.5
"""Share of the planning time after which no further group is looked at."""
PREDICTION_SHARE = 0.7
"""Share of the planning time after which no further memory is predicted."""
BEHIND = 0.05
"""Groups whose frozen features score lower than the best ones by more than this are dropped."""
FIRST = 15.0
"""Seconds without which no candidate is tried: a kit is built, and a process starts."""
PATIENCE = 3.0
"""A probe is stopped after this many times its expected seconds."""
GRACE = 20.0
"""Seconds that a probe gets on top."""
MARGIN = 0.05
"""What a run may take beyond its prediction; candidates that were not tried leave so much."""


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
        time_limit = self._limits.time
        self._training = math.inf if time_limit is None else time_limit - self._limits.planning

    def run(self) -> Plan:
        """The finished plan.

        Raises:
            PocketuneError: Nothing fits the budget, or no candidate could be trained.
        """
        self._journal.open(*self._source.find())
        self._look_at_groups()
        self._predict_the_rest()
        self._halve()
        return self._choose()

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
        waiting = list(firsts.values())
        while waiting:
            waiting.remove(first := min(waiting, key=lambda each: self._turn(each, waiting)))
            late = self._seconds_left(LOOK_SHARE) <= 0
            if late and any(trial.cost for trial in self._journal.left):
                self._drop(self._mates(first), "there was no time to look at it")
            elif (why := self._behind(first) or self._larger(first)) is not None:
                self._drop(self._mates(first), why)
            elif self._predict(first) and several and not late:
                self._score_features(first)
        if not self._journal.left:
            raise PocketuneError(self._nothing())
        for trial in self._journal.left:
            if (why := self._behind(trial)) is not None:
                self._drop([trial], why)
                self._reserve.append(trial.name)
        self._journal.write()

    def _turn(self, first: Trial, waiting: list[Trial]) -> tuple[int, float]:
        """When a group is looked at: every network at one resolution, then the best at others."""
        left = sum(_network(each) == _network(first) for each in waiting)
        known = [t for t in self._journal.plan.trials if _network(t) == _network(first)]
        return -left, -max(map(_features, known))

    def _larger(self, first: Trial) -> str | None:
        """Why a resolution cannot fit: a lower one does not. None if it may."""
        for trial in too_large(self._journal.plan):
            small = trial.candidate.size < first.candidate.size
            if small and _network(trial) == _network(first) and _method(trial) == _method(first):
                return f"needs more than {trial.name}, which takes {format_size(trial.memory)}"
        return None

    def _predict_the_rest(self) -> None:
        """Predict the trials that promise most, until a few of them are known to fit."""
        while True:
            best = self._finalists()
            unknown = next((trial for trial in best if trial.cost is None), None)
            if unknown is None:
                break
            if self._seconds_left(PREDICTION_SHARE) <= 0:
                others = [trial for trial in self._journal.left if trial.cost is None]
                self._drop(others, "there was no time to predict its memory")
            else:
                self._predict(unknown)
        others = [trial for trial in self._journal.left if trial not in best]
        self._drop(others, f"{best[0].name} promises more" if best else "")
        self._reserve += [trial.name for trial in others]
        self._journal.write()

    def _finalists(self) -> list[Trial]:
        """The few trials that promise most, of different networks where there are any.

        Frozen features of some hundred photos do not tell similar networks apart.
        """
        ordered, counts = self._order(self._journal.left), Counter[str]()
        if len(ordered) <= FEW:
            return ordered
        ranks = []
        for place, trial in enumerate(ordered):
            name = str(trial.candidate.network)
            counts[name] += 1
            ranks.append((counts[name] > OF_ONE, place))
        return [ordered[place] for _, place in sorted(ranks)[:FEW]]

    def _order(self, trials: Iterable[Trial]) -> list[Trial]:
        return promising(list(trials), self._training)

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

    def _halve(self) -> None:
        """Probe and drop until one trial is left, or the time is over."""
        left = self._journal.left
        several = len(left) + len(self._reserve) > 1
        pace = self._pace(self._order(left)) if several else None
        left = self._journal.left  # the first steps may have failed
        while pace is not None and len(left) > 1:
            seconds = self._seconds_left()
            planned = next_round(left, pace, seconds, self._images, self._training)
            if len(planned.trials) < 2:
                break
            self._drop(planned.out, "there was no time to try it")
            for number, trial in enumerate(planned.trials, 1):
                place = f"{number} of {len(planned.trials)}"
                self._probe(trial, planned.images, pace, place)
            left = self._halved(planned.images)

    def _pace(self, trials: list[Trial]) -> Pace | None:
        """The pace of this machine, from a few steps of the first trial that trains.

        None if there is no time for them.
        """
        for trial in trials:
            if self._journal.earlier_timing(trial) is None and self._seconds_left() < FIRST:
                return None
            kit = self._kit(trial)
            if kit is None or trial.cost is None:
                continue
            timing = self._timing(trial, kit)
            if timing is not None:
                self._journal.write(timing=timing, timed=trial.name)
                return Pace.of(timing, trial.cost, self._current(trial).built_seconds or 0.0)
            if self._current(trial).late_seconds is not None:
                return None
        return None

    def _timing(self, trial: Trial, kit: Path) -> Probe | None:
        """A few steps of a trial, recalled or measured; None if they fail or take too long."""
        recalled = self._journal.earlier_timing(trial)
        if recalled is not None:
            return recalled
        earlier = self._journal.earlier(trial)
        if earlier is not None and earlier.late_seconds is not None:
            self._journal.put(replace(trial, late_seconds=earlier.late_seconds))
            return None
        if self._failed_earlier(trial):
            return None
        self._journal.say(f"timing {trial.name}")
        images = min(FEWEST, self._images)
        began = self._clock()
        try:
            seconds = self._seconds_left() + GRACE
            return self._source.probe(trial.candidate, kit, _steps(trial, images), images, seconds)
        except TooSlow as error:  # the others would be too slow as well
            self._journal.say(f"{trial.name}: {error}")
            self._journal.put(replace(self._current(trial), late_seconds=self._clock() - began))
        except PocketuneError as error:
            self._fail(trial, error, self._clock() - began)
        return None

    def _halved(self, images: int) -> list[Trial]:
        """Drop the worse half of a round; all but the best if its runs were whole runs."""
        kept, worse = better_half(self._journal.left, self._training)
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
            lambda: self._source.probe(
                trial.candidate, kit, steps, max(PHOTOS, images), PATIENCE * expected + GRACE
            ),
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
                self._fail(trial, error, self._clock() - began)
                return None
            earlier = self._journal.earlier(trial)
            seconds = earlier.built_seconds if earlier else None
            built = self._clock() - began if seconds is None else seconds
            self._journal.put(replace(self._current(trial), built_seconds=built))
            self._journal.write()
        return self._kits[name]

    def _choose(self) -> Plan:
        """Choose the best trial that has a kit; else one that was dropped for a better one."""
        for trials in (self._journal.left, self._back()):
            for trial in sorted(self._order(trials), key=self._is_tight):
                self._journal.put(replace(self._current(trial), dropped=None))
                kit = self._kit(trial)
                if kit is not None:
                    others = [each for each in self._journal.left if each.name != trial.name]
                    self._drop(others, f"{trial.name} {_ahead(trial)}")
                    return self._journal.write(choice=trial.name, kit=str(kit))
        raise PocketuneError(f"no candidate could be trained: {self._why_not()}")

    def _back(self) -> list[Trial]:
        """Trials that were dropped for a better one, or whose run was too slow."""
        trials = self._journal.plan.trials
        return [t for t in trials if t.cost and (t.name in self._reserve or t.late_seconds)]

    def _is_tight(self, trial: Trial) -> bool:
        """Whether a trial was not measured, and could exceed the budget by a bad prediction."""
        budget = self._limits.budget
        return budget is not None and not trial.probes and (1 + MARGIN) * trial.memory > budget

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
        if found is None and self._failed_earlier(trial):
            return None
        if found is not None:
            self._journal.put(add(self._current(trial), found))
            return found
        began = self._clock()
        try:
            found = measure()
        except PocketuneError as error:
            self._fail(trial, error, self._clock() - began)
            return None
        self._journal.put(add(self._current(trial), found))
        self._journal.write()
        return found

    def _current(self, trial: Trial) -> Trial:
        return next(each for each in self._journal.plan.trials if each.name == trial.name)

    def _fail(self, trial: Trial, error: PocketuneError, seconds: float) -> None:
        """Drop a trial whose kit, prediction or run failed."""
        self._journal.say(f"{trial.name}: {error}")
        failed = self._current(trial)
        if isinstance(error, TooSlow):
            failed = replace(failed, late_seconds=seconds)
        else:
            failed = replace(failed, failed_seconds=seconds)
        self._journal.put(failed.drop(str(error)))
        self._journal.write()

    def _failed_earlier(self, trial: Trial) -> bool:
        """Whether a trial failed in the plan that was stopped; then it is dropped again."""
        earlier = self._journal.earlier(trial)
        if earlier is None:
            return False
        for kind, seconds in (
            (PocketuneError, earlier.failed_seconds),
            (TooSlow, earlier.late_seconds),
        ):
            if seconds is not None:
                self._fail(trial, kind(earlier.dropped or ""), seconds)
                return True
        return False

    def _drop(self, trials: Iterable[Trial], reason: str) -> None:
        self._journal.put(*(trial.drop(reason) for trial in trials))

    def _seconds_left(self, share: float = 1.0) -> float:
        """Seconds until a share of the time for planning is over, preparations apart."""
        plan = self._journal.plan
        own = max(0.0, self._limits.planning - plan.preparing)
        return share * own - (plan.seconds - plan.preparing)

    def _why_not(self) -> str:
        plan = self._journal.plan
        reasons = [f"{t.name}: {t.dropped}" for t in plan.trials if t.failed_seconds is not None]
        reasons += [f"{each.name}: {each.reason}" for each in plan.left_out]
        return "; ".join(reasons[:3]) or "there are no kits"


def _steps(trial: Trial, images: int) -> int:
    return max(1, images // trial.candidate.step_images)


def _ahead(trial: Trial) -> str:
    """Why a trial is chosen before others."""
    if trial.probes:
        return "is ahead, and there was no time for a longer run"
    return "promises more, and there was no time to try it"


def _method(trial: Trial) -> str:
    return str(trial.candidate.method)


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
