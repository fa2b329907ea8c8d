"""How far the tensors of a step are off, and how far rounding may take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from pocketune.compiler.reference import Tensors

TOLERANCE = 1e-4
"""Largest error of a tensor, as a share of its largest magnitude."""

FLOOR = 1e-6
"""Error that is always allowed: some gradients are zero except for rounding."""

ROUNDING = 8
"""Error that is allowed as a multiple of PyTorch's own float32 against float64."""

JITTERS = 3
"""Further runs of PyTorch in float32, if a tensor is off by more, on images that differ in their
last bit. They show how much rounding can change the tensor, wherever an implementation rounds."""


@dataclass(frozen=True)
class Deviation:
    """How far a tensor is off, and how far it may be."""

    tensor: str
    error: float
    allowed: float

    @property
    def share(self) -> float:
        """The error relative to the bound; infinite for an error that is not finite."""
        return self.error / self.allowed if np.isfinite(self.error) else np.inf


def worst_deviation(ours: Tensors, truth: Tensors, noisy: Callable[[int], Tensors]) -> Deviation:
    """The tensor that is nearest to its bound, or furthest beyond.

    The effect of rounding is computed only if a tensor is off by more than `TOLERANCE`.

    Args:
        ours: What is judged.
        truth: The same in float64.
        noisy: The same in float32, on images that each further number changes in their last bit;
            called with 0, 1, ..., as often as needed.
    """
    rounded: list[Tensors] = []
    worst = max(_deviations(ours, truth, rounded), key=attrgetter("share"))
    for noise in range(1 + JITTERS):
        if worst.share <= 1:
            break
        rounded.append(noisy(noise))
        worst = max(_deviations(ours, truth, rounded), key=attrgetter("share"))
    return worst


def _deviations(ours: Tensors, exact: Tensors, rounded: list[Tensors]) -> Iterator[Deviation]:
    for name, truth in exact.items():
        off = (largest(values[name] - truth) for values in rounded)
        rounding = ROUNDING * max(off, default=0.0)
        allowed = max(TOLERANCE * largest(truth), rounding, FLOOR)  # not finite if truth is not
        yield Deviation(name, largest(ours[name] - truth), allowed)


def largest(values: NDArray[np.float64]) -> float:
    """The largest magnitude; 0 without values."""
    return float(np.max(np.abs(values), initial=0.0))
