"""A first look: predict memory, score frozen features, and keep what promises most."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pocketune.data.images.cost import HEAVY_BYTES
from pocketune.device.memory.budget import heaviest_photo
from pocketune.device.memory.sizes import format_size
from pocketune.errors import PocketuneError
from pocketune.planner.alternatives import smallest_budget, too_large
from pocketune.planner.expectation import standard_error
from pocketune.planner.predict import SMALLER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pocketune.planner.evidence import Evidence
    from pocketune.planner.trial import Trial

PHOTOS = 240
"""Photos of a first look at features; a few hundred tell very different networks apart."""
MOST_PHOTOS = 1000
"""Photos of a second look, at most."""
SECOND_LOOK_FACTOR = 1.5
"""A second look is at this many times the photos at least."""
SECOND_LOOK_SHARE = 0.4
"""Share of the time left for planning that a second look may take."""
FINALISTS = 4
"""Number of candidates that are tried in short runs."""
MAX_PER_NETWORK = 2
"""Number of these that may be of one network, unless there are too few others."""
FIRST_LOOK_SHARE = 0.5
"""Share of the planning time after which no further group is looked at."""
PREDICTION_SHARE = 0.7
"""Share of the planning time after which no memory is predicted but that of the most promising."""
LEAST_FIRST = ("last", "mobiletl", "blocks", "tinytl")
"""Methods in the order of the memory that they take with the same frozen part and batch."""
LESS = 0.05
"""A method takes at most this share less than one before it in this order."""
STANDARD_ERRORS_BEHIND = 2.0
"""Groups whose frozen features score lower than the best ones by more standard errors of the
difference are dropped."""


class Screening:
    """Leaves the few trials of a plan that fit and promise most.

    Args:
        evidence: The evidence of the plan.

    Attributes:
        reserve: Names of the trials that were dropped for better ones.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.reserve: list[str] = []
        self._evidence = evidence
        self._journal = evidence.journal
        self._fallbacks = evidence.source.fallbacks()
        self._many = len(self._journal.left) > FINALISTS

    def run(self) -> None:
        """Drop all other trials.

        Raises:
            PocketuneError: Nothing fits the budget.
        """
        self._look_at_groups()
        if self._journal.left:
            self._keep_the_best()
        elif not self.fall_back():
            raise PocketuneError(self._nothing())

    def fall_back(self) -> bool:
        """Where nothing is left, look at candidates of less memory until something fits.

        Returns:
            Whether something does.
        """
        while not self._journal.left and too_large(self._journal.plan):
            candidates = next(self._fallbacks, None)
            if candidates is None:
                break
            self._journal.add(candidates)
            self._look_at_groups()
        self._keep_the_best()
        return bool(self._journal.left)

    def _keep_the_best(self) -> None:
        self._drop_behind()
        self._look_again()
        self._predict_the_rest()

    def _look_at_groups(self) -> None:
        """Find a trial of each group that fits the budget, and score the group's features.

        A network that is behind at one resolution is not looked at at another. With few candidates,
        none is behind.
        """
        several = len(self._journal.left) > 1
        waiting = list(_firsts(self._journal.left).values())
        while waiting:
            waiting.remove(first := min(waiting, key=lambda each: self._turn(each, waiting)))
            late = self._evidence.seconds_left(FIRST_LOOK_SHARE) <= 0
            if late and any(trial.cost for trial in self._journal.left):
                self._evidence.drop(self._mates(first), "there was no time to look at it")
            elif (why := self._behind(first)) is not None:
                self._evidence.drop(self._mates(first), why)
            elif (fitting := self._fitting(first)) is not None and several and not late:
                self._score_features(fitting, PHOTOS)

    def _fitting(self, first: Trial) -> Trial | None:
        """The first trial of a group that fits the budget; those before it are dropped."""
        mates = [trial for trial in self._mates(first) if trial.dropped is None]
        return next((trial for trial in mates if self._predict(trial)), None)

    def _look_again(self) -> None:
        """Score the features of what is left on as many photos as there is time for."""
        firsts = _firsts(trial for trial in self._journal.left if trial.head is not None)
        looked = [
            t.head for t in self._journal.plan.trials if t.candidate.group in firsts and t.head
        ]
        spent = sum(head.seconds for head in looked)
        photos = max((head.photos for head in looked), default=0)
        most = min(MOST_PHOTOS, self._journal.plan.asked.training)
        seconds = SECOND_LOOK_SHARE * self._evidence.seconds_left()
        count = min(most, int(photos * (1 + seconds / max(spent, 1e-9))))
        if len(firsts) < 2 or count < SECOND_LOOK_FACTOR * photos:
            return
        for first in firsts.values():
            self._score_features(first, count)
        self._drop_behind()

    def _drop_behind(self) -> None:
        for trial in self._journal.left:
            if (why := self._behind(trial)) is not None:
                self._evidence.drop([trial], why)
                self.reserve.append(trial.name)
        self._journal.write()

    def _predict_the_rest(self) -> None:
        """Predict the trials that promise most, until a few of them are known to fit."""
        while True:
            best = self._finalists()
            unknown = next((trial for trial in best if trial.cost is None), None)
            if unknown is None:
                break
            share = 1.0 if unknown is best[0] else PREDICTION_SHARE
            if self._evidence.seconds_left(share) <= 0:
                others = [trial for trial in self._journal.left if trial.cost is None]
                self._evidence.drop(others, "there was no time to predict its memory")
            else:
                self._predict(unknown)
        others = [trial for trial in self._journal.left if trial not in best]
        self._evidence.drop(others, f"{best[0].name} promises more" if best else "")
        self.reserve += [trial.name for trial in others]
        self._journal.write()

    def _turn(self, first: Trial, waiting: list[Trial]) -> tuple[int, float]:
        """When a group is looked at: every network at one resolution, then the best at others."""
        left = sum(_network(each) == _network(first) for each in waiting)
        known = [t for t in self._journal.plan.trials if _network(t) == _network(first)]
        return -left, -max(map(_features, known))

    def _larger(self, trial: Trial) -> str | None:
        """Why a trial cannot fit: one that takes less memory does not. None if it may.

        It is of the same method at a lower resolution, or of one that takes less by more than a
        prediction would show.
        """
        budget = self._evidence.limits.budget or 0
        for other in too_large(self._journal.plan):
            if _step(other) != _step(trial) or other.candidate.size > trial.candidate.size:
                continue
            same = other.candidate.method == trial.candidate.method
            lower = same and other.candidate.size < trial.candidate.size
            clear = (1 - LESS) * other.memory > budget and _takes_less(other, trial)
            if lower or clear:
                return f"needs more than {other.name}, which takes {format_size(other.memory)}"
        return None

    def _finalists(self) -> list[Trial]:
        """The few trials that promise most, of different networks where there are any.

        Frozen features of some hundred photos do not tell similar networks apart.
        """
        ordered, counts = self._evidence.order(self._journal.left), Counter[str]()
        if len(ordered) <= FINALISTS:
            return ordered
        ranks = []
        for place, trial in enumerate(ordered):
            name = str(trial.candidate.network)
            counts[name] += 1
            ranks.append((counts[name] > MAX_PER_NETWORK, place))
        return [ordered[place] for _, place in sorted(ranks)[:FINALISTS]]

    def _predict(self, trial: Trial) -> bool:
        """Whether a trial fits the budget by its predicted cost; if it does not, it is dropped."""
        if (why := self._larger(trial)) is not None:
            self._evidence.drop([self._evidence.current(trial)], why)
            return False
        cost = self._evidence.known(
            trial,
            lambda earlier: earlier.cost,
            lambda: self._evidence.source.cost(trial.candidate),
            lambda trial, cost: replace(trial, cost=cost),
        )
        if cost is None:
            return False
        budget, needed = self._evidence.limits.budget, format_size(cost.memory)
        smaller = f" with {SMALLER}" if cost.optimizer == SMALLER else ""
        self._journal.say(f"{trial.name}: {needed} predicted{smaller}")
        if budget is None or cost.memory <= budget:
            return True
        over = format_size(cost.memory - budget)
        self._evidence.drop(
            [self._evidence.current(trial)], f"needs {needed}, {over} over the budget"
        )
        return False

    def _score_features(self, first: Trial, count: int) -> None:
        """Score the features of a group on so many photos.

        Without a score, its trials are tried all the same.
        """
        earlier, number = self._journal.earlier(first), len(first.heads)
        try:
            if earlier is not None and len(earlier.heads) > number:
                head = earlier.heads[number]
            else:
                head = self._evidence.source.head(first.candidate, count)
        except PocketuneError as error:
            self._journal.say(f"{_title(first)}: {error}")
            return
        free = replace(head, seconds=0.0)
        for trial in self._mates(first):
            mine = head if trial.name == first.name else free
            self._journal.put(replace(trial, heads=(*trial.heads, mine)))
        self._journal.write()
        self._journal.say(f"{_title(first)}: {head.score} of {head.photos} photos before training")

    def _behind(self, trial: Trial) -> str | None:
        """Why a trial's network is too far behind others; None if it is not."""
        if not self._many:
            return None
        scored = [each for each in self._journal.plan.trials if each.head is not None]
        best = max(scored, key=_features, default=None)
        mine = [each for each in scored if _network(each) == _network(trial)]
        if trial.head is not None:  # its own resolution
            mine = [trial]
        own = max(mine, key=_features, default=None)
        if best is None or own is None:
            return None
        if _features(own) >= _features(best) - STANDARD_ERRORS_BEHIND * math.hypot(
            _error(own), _error(best)
        ):
            return None
        return f"its frozen features give {_words(own)}, and {_words(best)} with {_title(best)}"

    def _nothing(self) -> str:
        """Why there is no candidate, and the smallest budget that gives one."""
        trials = [trial for trial in self._journal.plan.trials if trial.cost]
        budget = self._evidence.limits.budget
        if not trials or budget is None:
            return f"there is nothing to choose from: {self._evidence.why_not()}"
        needed = format_size(smallest_budget(self._journal.plan) or 0)
        least = min(trials, key=lambda trial: trial.memory)
        reason = (
            f"nothing fits the budget of {format_size(budget)}; the smallest that something fits "
            f"is {needed}, for {least.name}"
        )
        decoding = self._evidence.decoding(least.candidate.size)
        if decoding is None or decoding.most <= HEAVY_BYTES:
            return reason
        return f"{reason}: {heaviest_photo(decoding)}"

    def _mates(self, trial: Trial) -> list[Trial]:
        """All trials of a group."""
        group = trial.candidate.group
        return [each for each in self._journal.plan.trials if each.candidate.group == group]


def _firsts(trials: Iterable[Trial]) -> dict[str, Trial]:
    """The first trial of each group, by the group."""
    firsts: dict[str, Trial] = {}
    for trial in trials:
        firsts.setdefault(trial.candidate.group, trial)
    return firsts


def _step(trial: Trial) -> tuple[object, ...]:
    """What trials have in common that differ in method and resolution alone."""
    its = trial.candidate
    return _network(trial), its.frozen_bits, its.batch, its.accumulate


def _takes_less(one: Trial, other: Trial) -> bool:
    """Whether the method of one trial is known to take less memory than that of another."""
    names = [str(trial.candidate.method.get("name")) for trial in (one, other)]
    if not set(names) <= set(LEAST_FIRST):
        return False
    return LEAST_FIRST.index(names[0]) < LEAST_FIRST.index(names[1])


def _title(trial: Trial) -> str:
    """What has these features: a kit by its name, or a network at a resolution."""
    return trial.name if trial.candidate.kit else trial.candidate.group


def _features(trial: Trial) -> float:
    return trial.head.score.value if trial.head else 0.0


def _error(trial: Trial) -> float:
    """The standard error of the score of its features."""
    return standard_error(trial.head.score.value, trial.head.photos) if trial.head else 0.0


def _words(trial: Trial) -> str:
    return str(trial.head.score) if trial.head else ""


def _network(trial: Trial) -> tuple[str, str | None]:
    """What resolutions of one network have in common; a kit is a network of its own."""
    candidate = trial.candidate
    return (candidate.group, None) if candidate.kit else (str(candidate.network), candidate.weights)
