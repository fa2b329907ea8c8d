"""What a candidate is expected to reach, from its frozen features, its method, runs and the time.

The frozen features say where training starts, and tables of results what a method gains from there.
A short run is a second opinion. Both are uncertain, and the opinions are averaged with the inverses
of their variances as weights, which gives the mean of a normal distribution that both are drawn
from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketune.planner.trial import Trial

GAINS = {"last": 0.03, "blocks": 0.17, "mobiletl": 0.2}
"""The share of the errors of a classifier on frozen features that training with a method takes
away, in the middle over the networks and photos of `benchmarks/results/accuracy_*.md`,
`defaults_adam.md` and `plan.md`."""
OTHER_GAIN = 0.1
"""The same for all other methods."""
GAIN_DEVIATION = 0.05
"""Standard deviation of these shares between networks on the same photos, where there are enough
errors to tell. What the photos add to all candidates does not change their order."""
HALF_GAIN_STEPS = 50
"""Steps after which half of it is gained."""
SLOWEST_STEP = 3.0
"""Steps take up to this many times their predicted seconds: photos are decoded meanwhile, and other
programs run."""


@dataclass(frozen=True)
class Training:
    """The training that follows a plan.

    Attributes:
        seconds: Its limit of time.
        images: Images that it trains on if there is time.
    """

    seconds: float = math.inf
    images: int = 1_000_000_000

    def steps(self, trial: Trial) -> float:
        """Steps that a trial makes in it."""
        fitting = self.seconds / max(SLOWEST_STEP * trial.step_seconds, 1e-9)
        return min(fitting, self.images / trial.candidate.step_images)


def expected_score(trial: Trial, training: Training) -> float | None:
    """The expected score after the training; None if neither features nor a run were scored."""
    opinions = [_from_features(trial, training), _from_run(trial, training)]
    known = [opinion for opinion in opinions if opinion is not None]
    if not known:
        return None
    return sum(mean / variance for mean, variance in known) / sum(1 / v for _, v in known)


def _from_features(trial: Trial, training: Training) -> tuple[float, float] | None:
    """Mean and variance of what a run reaches that starts from the frozen features."""
    if trial.head is None:
        return None
    return _trained(trial.head.score.value, trial.head.photos, trial, training.steps(trial), 0)


def _from_run(trial: Trial, training: Training) -> tuple[float, float] | None:
    """Mean and variance of what a run reaches that is longer than the last probe."""
    probe = trial.probes[-1] if trial.probes else None
    if probe is None or probe.score is None:
        return None
    steps = max(training.steps(trial), probe.steps)
    return _trained(probe.score.value, probe.photos, trial, steps, probe.steps)


def _trained(
    score: float, photos: int, trial: Trial, steps: float, done: int
) -> tuple[float, float]:
    """Mean and variance of the score after more steps, from a score of so many photos."""
    gain = GAINS.get(str(trial.candidate.method.get("name")), OTHER_GAIN)
    rest, errors = _learned(steps) - _learned(done), 1 - score
    variance = standard_error(score, photos) ** 2 + (errors * GAIN_DEVIATION * rest) ** 2
    return score + errors * gain * rest, variance


def standard_error(score: float, photos: int) -> float:
    """That of a share of so many photos.

    It is taken with two more photos, one right and one wrong, so that it is never 0 (Agresti and
    Coull, 1998).

    >>> round(standard_error(0.9, 240), 3)
    0.02
    """
    share = (score * photos + 1) / (photos + 2)
    return math.sqrt(share * (1 - share) / (photos + 2))


def _learned(steps: float) -> float:
    """The share of a method's gain that so many steps give."""
    return 1.0 if math.isinf(steps) else steps / (steps + HALF_GAIN_STEPS)
