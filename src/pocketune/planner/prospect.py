"""What a candidate is expected to reach, from its frozen features, its method and the time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketune.planner.trial import Trial

GAINS = {"last": 0.03, "blocks": 0.25, "mobiletl": 0.25}
"""The share of the errors of a classifier on frozen features that training with a method takes
away, in the middle over the networks and photos of ``benchmarks/results/accuracy_*.md`` and
``defaults_adam.md``."""
OTHER = 0.15
"""The same for all other methods."""
HALF = 50
"""Steps after which half of it is gained."""
BUSY = 3.0
"""Steps take up to this many times their predicted seconds: photos are decoded meanwhile, and other
programs run."""


def prospect(trial: Trial, seconds: float) -> float:
    """The expected score after so many seconds of training; without features, its order counts.

    It ranks candidates that were not tried, and those whose trials do not tell them apart.
    """
    features = trial.head.score.value if trial.head else 0.0
    gain = GAINS.get(str(trial.candidate.method.get("name")), OTHER)
    return features + (1 - features) * gain * _learned(trial, seconds)


def _learned(trial: Trial, seconds: float) -> float:
    """The share of a method's gain that the steps in these seconds give."""
    if math.isinf(seconds):
        return 1.0
    steps = seconds / max(BUSY * trial.step_seconds, 1e-9)
    return steps / (steps + HALF)
