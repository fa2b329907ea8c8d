"""How well a model's confidence agrees with how often it is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 15


@dataclass(frozen=True)
class Bin:
    """Decisions of similar confidence.

    Attributes:
        low: Lower end of the confidences, not included (included if it is 0).
        high: Upper end, included.
        count: Number of decisions.
        confidence: Their mean confidence; nan without decisions.
        accuracy: Fraction of them that is right; nan without decisions.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """A reliability diagram and its summary in one number.

    Attributes:
        bins: Bins of equal width from 0 to 1.
        error: The expected calibration error: the mean over all decisions of the difference
            between confidence and accuracy of their bin.
        confidence: Mean confidence of all decisions.
        accuracy: Fraction of all decisions that is right.
        chance: The error that chance alone gives in at most a few percent of cases, if each
            decision is right with the probability of its confidence.
        apart_by_chance: The same for the difference between `confidence` and `accuracy`.
    """

    bins: tuple[Bin, ...]
    error: float
    confidence: float
    accuracy: float
    chance: float
    apart_by_chance: float


def calibrate(
    confidences: NDArray[np.float64], right: NDArray[Any], bins: int = BINS
) -> Calibration:
    """The reliability diagram of decisions, as in Guo et al., 2017 (section 2).

    Args:
        confidences: Probabilities of the decisions, in any shape.
        right: Whether each is right, in the same shape.
        bins: Number of bins.

    Raises:
        ValueError: There are no decisions.
    """
    sure, hits = np.ravel(confidences).astype(np.float64), np.ravel(right).astype(np.float64)
    if not len(sure):
        raise ValueError("there are no decisions to calibrate")
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weights=sure, minlength=bins) / counts
        accuracy = np.bincount(place, weights=hits, minlength=bins) / counts
    error = float(np.nansum(counts / len(sure) * np.abs(mean - accuracy)))
    # The number of right decisions is binomial, so that the difference of a bin has this deviation.
    deviations = np.sqrt(np.bincount(place, weights=sure * (1 - sure), minlength=bins)) / len(sure)
    variance = float((deviations**2).sum())
    mean_size = np.sqrt(2 / np.pi)  # of a normal variable, in standard deviations
    chance = mean_size * deviations.sum() + 2 * np.sqrt((1 - mean_size**2) * variance)
    columns = (edges[:-1], edges[1:], counts, mean, accuracy)
    found = tuple(map(Bin, *(column.tolist() for column in columns)))
    apart = 2 * np.sqrt(variance)
    return Calibration(
        found, error, float(sure.mean()), float(hits.mean()), float(chance), float(apart)
    )
