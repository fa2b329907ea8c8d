"""The learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class CosineSchedule:
    """Linear warm-up to `lr`, then half a cosine down to zero.

    >>> schedule = CosineSchedule(lr=1.0, steps=100, warmup=10)
    >>> schedule(0), schedule(9), round(schedule(55), 6)
    (0.1, 1.0, 0.5)

    Args:
        lr: Peak learning rate.
        steps: Steps of the whole run, including the warm-up.
        warmup: Steps of the warm-up; 0 starts at `lr`.
    """

    lr: float
    steps: int
    warmup: int = 0

    def __call__(self, step: int) -> float:
        """Learning rate of step `step`, counted from 0."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
