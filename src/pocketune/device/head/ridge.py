"""Ridge regression, and what it predicts for each photo if it is fitted to all others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pocketune.arrays import FloatArray
from pocketune.device.head.basis import decompose
from pocketune.device.head.sums import Blocks, Exact, Sums
from pocketune.tasks import Labels


class Ridge:
    """Least squares from embeddings to targets with a penalty on the weights, not on the bias.

    Photos are weighted such that classes weigh alike. The penalty is `strength` times the mean
    sum of squares of a dimension. A photo's prediction by the fit to all others follows from its
    residual r and leverage h: its error is r / (1 - h) (Allen, 1974; Golub et al., 1979). The
    weights of the other photos, the penalty and the number of photos stay as they are.

    Args:
        blocks: The embeddings.
        sums: Their sums.
        strengths: The penalties to try.
    """

    name = "ridge"

    def __init__(self, blocks: Blocks, sums: Sums, strengths: Exact) -> None:
        self.strengths = strengths
        self._sums = sums
        self._mean = sums.mean
        size = len(self._mean)
        self._basis = decompose(lambda: (root * rows for rows, _, root in self._rows(blocks)), size)
        moments = np.zeros((len(sums.targets), len(self._basis.squares)))
        for rows, wanted, root in self._rows(blocks):
            moments += (root * root * wanted).T @ (rows @ self._basis.axes)
        self._moments: Exact = moments
        self._unit = self._basis.squares.sum().item() / max(size, 1) or 1.0  # 0 for equal photos

    def left_out(self, rows: FloatArray, labels: Labels) -> Iterator[Exact]:
        """For each strength, the outputs (N, K) for photos by the fits without each of them."""
        ((centered, wanted, root),) = self._rows(lambda: iter([(rows, labels)]))
        rotated, weight = centered @ self._basis.axes, root * root
        for strength in self.strengths:
            shrunk = self._basis.squares + strength * self._unit
            fitted = (rotated / shrunk) @ self._moments.T
            spread = (rotated * rotated / shrunk).sum(axis=1, keepdims=True)
            leverage = np.minimum(weight * (1 / self._sums.images + spread), 1 - 1e-9)
            yield (fitted - leverage * wanted) / (1 - leverage) + self._sums.targets

    def layer(self, index: int) -> tuple[Exact, Exact]:
        """Weight (K, D) and bias (K,) for a strength."""
        shrunk = self._basis.squares + self.strengths[index] * self._unit
        weight = (self._moments / shrunk) @ self._basis.axes.T
        return weight, self._sums.targets - weight @ self._mean

    def _rows(self, blocks: Blocks) -> Iterator[tuple[Exact, Exact, Exact]]:
        """Centered rows (N, D) and targets (N, K), and the square root (N, 1) of each weight."""
        task = self._sums.task
        for rows, labels in blocks():
            targets = task.targets(labels)
            assert targets is not None
            weights = self._sums.weights[self._sums.groups(labels), None]
            yield rows - self._mean, targets - self._sums.targets, np.sqrt(weights)
