"""Successive halving: short runs of many candidates, longer runs of the better half.

Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits" (ICML 2013), as
Jamieson and Talwalkar (AISTATS 2016) use it for training runs. Each probe is a whole run with its
own schedule, and not a piece of a longer one: a learning rate that has decayed to zero shows what a
candidate reaches, while the same step in the middle of a longer schedule does not.

Everything here follows from recorded seconds and scores, never from the clock, so that a resumed
plan goes on as it would have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.planner.expectation import Training, expected_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.planner.candidate import Cost
    from pocketune.planner.trial import Probe, Trial

MIN_PROBE_IMAGES = 320
"""Images below which a probe says less than the frozen features: few steps gain nothing yet."""
UNLIMITED = Training()
ROUND_GROWTH = 1.5
"""A later round has probes that are this many times longer at least; else it says nothing new."""
OVERHEAD_PER_IMAGE = 2.7
"""Seconds for an image of a probe beside its step, relative to the step: its features for the
classifier that is computed before and after, and three validations. 2.4 to 2.9 were measured."""


@dataclass(frozen=True)
class Pace:
    """How long probes take here, from one that was measured.

    Attributes:
        slowness: Measured seconds of a step, relative to the predicted ones.
        fixed: Seconds of a short probe that are not steps: start, features, validation.
        build: Seconds that building a kit takes.
    """

    slowness: float
    fixed: float
    build: float = 0.0

    @classmethod
    def of(cls, probe: Probe, cost: Cost, build: float = 0.0) -> Pace:
        """The pace that a probe shows."""
        return cls(probe.step_seconds / max(cost.step_seconds, 1e-9), probe.fixed_seconds, build)

    def seconds(self, trial: Trial, images: int) -> float:
        """Expected seconds of a probe on so many images."""
        return self.fixed_of(trial) + images * self.image_seconds(trial)

    def fixed_of(self, trial: Trial) -> float:
        """Expected seconds of a probe that are not steps, with the kit if there is none yet."""
        if trial.probes:
            return trial.probes[-1].fixed_seconds
        return self.fixed + (self.build if trial.built_seconds is None else 0.0)

    def image_seconds(self, trial: Trial) -> float:
        """Expected seconds for each image of a probe."""
        slowness = 1.0 if trial.probes else (1 + OVERHEAD_PER_IMAGE) * self.slowness
        return slowness * trial.step_seconds / trial.candidate.step_images


@dataclass(frozen=True)
class Round:
    """A round of probes.

    Attributes:
        trials: Trials to probe, the most promising first.
        images: Images that each probe trains on; candidates may differ in their batches.
        out: Trials that there is no time for.
    """

    trials: tuple[Trial, ...]
    images: int
    out: tuple[Trial, ...]


def promising(trials: Sequence[Trial], training: Training = UNLIMITED) -> list[Trial]:
    """Trials in the order of what they promise.

    Of equal prospects, the one with less work in a step comes first, and one whose work is unknown
    last. Where prospects are unknown, it is the one with more: the budget has already bounded it.

    Args:
        trials: The trials.
        training: The training that follows.
    """

    def key(trial: Trial) -> tuple[float, float]:
        score = expected_score(trial, training)
        if score is None:
            return 0.0, -trial.cost.step_flops if trial.cost else 0.0
        return -score, trial.cost.step_flops if trial.cost else math.inf

    return sorted(trials, key=key)


def next_round(
    trials: Sequence[Trial], pace: Pace, seconds: float, most: int, training: Training = UNLIMITED
) -> Round:
    """The next round over these trials.

    The seconds are divided evenly over the rounds that are left, unless the next round would be
    hardly longer: then this round takes all of them. All probes of a round train on as many images.
    If the time does not suffice, the least promising trials are left out; a round without trials
    means that there is no time for any probe that would say more than earlier ones.

    Args:
        trials: The trials that are still in the search.
        pace: How long probes take.
        seconds: Seconds of planning that are left.
        most: Images of a whole run; a probe is never longer.
        training: The training that follows.
    """
    ordered = promising(trials, training)
    for count in range(len(ordered), 0, -1):
        images = _share(ordered[:count], pace, seconds)
        if images >= min(most, max(MIN_PROBE_IMAGES, ROUND_GROWTH * _done(ordered[:count]))):
            return Round(tuple(ordered[:count]), min(images, most), tuple(ordered[count:]))
    return Round((), 0, tuple(ordered))


def better_half(
    trials: Sequence[Trial], training: Training = UNLIMITED
) -> tuple[list[Trial], list[Trial]]:
    """The trials that stay after a round, and those that are dropped."""
    ordered = promising(trials, training)
    keep = math.ceil(len(ordered) / 2)
    return ordered[:keep], ordered[keep:]


def rounds(count: int) -> int:
    """Number of rounds until one of so many trials is left."""
    return max(1, math.ceil(math.log2(max(1, count))))


def _share(trials: Sequence[Trial], pace: Pace, seconds: float) -> int:
    """Images of this round, if later rounds have their part of the seconds."""
    part = seconds / rounds(len(trials))
    images = _images(trials, pace, part)
    later = _images(trials[: math.ceil(len(trials) / 2)], pace, part)
    return images if later >= ROUND_GROWTH * images else _images(trials, pace, seconds)


def _done(trials: Sequence[Trial]) -> int:
    """Images that the last probe of any of the trials trained on."""
    last = [
        trial.probes[-1].steps * trial.candidate.step_images for trial in trials if trial.probes
    ]
    return max(last, default=0)


def _images(trials: Sequence[Trial], pace: Pace, seconds: float) -> int:
    """Images for each of the trials, so that all probes together take these seconds."""
    left = seconds - sum(map(pace.fixed_of, trials))
    each = sum(map(pace.image_seconds, trials))
    return max(0, int(left / max(each, 1e-9)))
