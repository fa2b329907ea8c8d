"""The closed forms written out in float64, and refitted without each photo."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from pocketune.device.head.sums import Blocks

Exact = NDArray[np.float64]
Fit = Callable[[Exact, NDArray[np.int64]], Callable[[Exact], Exact]]


def blocks(rows: NDArray[np.float32], labels: NDArray[np.generic], size: int = 7) -> Blocks:
    """Blocks of `size` photos."""

    def give() -> Iterator[tuple[NDArray[np.float32], NDArray[np.generic]]]:
        for start in range(0, len(rows), size):
            yield rows[start : start + size], labels[start : start + size]

    return give


def balanced(labels: NDArray[np.int64]) -> Exact:
    """Weights of the photos such that classes weigh alike, 1 on average."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return len(labels) / (len(counts) * counts[place].astype(np.float64))


def ridge(rows: Exact, targets: Exact, weights: Exact, penalty: float) -> tuple[Exact, Exact]:
    """Weight (K, D) and bias (K,) of weighted least squares; the bias has no penalty."""
    total = weights.sum()
    mean, wanted = weights @ rows / total, weights @ targets / total
    centered = rows - mean
    gram = (weights[:, None] * centered).T @ centered + penalty * np.eye(rows.shape[1])
    moments = (weights[:, None] * centered).T @ (targets - wanted)
    weight = np.linalg.solve(gram, moments).T
    return weight, wanted - weight @ mean


def scatter(rows: Exact, labels: NDArray[np.int64]) -> Exact:
    """The scatter (D, D) within classes."""
    off = np.concatenate([rows[labels == c] - rows[labels == c].mean(0) for c in np.unique(labels)])
    result: Exact = off.T @ off
    return result


def gaussian(
    rows: Exact, labels: NDArray[np.int64], inverse: Exact, classes: int
) -> tuple[Exact, Exact]:
    """Weight (C, D) and bias (C,) of the linear discriminants with this inverse covariance."""
    means = np.stack([rows[labels == c].mean(0) for c in range(classes)])
    weight = means @ inverse
    return weight, -0.5 * np.einsum("cd,cd->c", weight, means)
