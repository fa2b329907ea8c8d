"""Classes as normal distributions of one covariance: nearest means, and shrinkage LDA."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.device.head.basis import Basis, decompose
from pocketune.device.head.sums import BLOCK, Blocks, Exact, Sums
from pocketune.tasks import Labels

UNSCATTERED = 5.0
"""Lead of a photo's own class over the others, on average, where no class has two different photos
and their variance is unknown. With one photo a class of five and twelve flowers, leads of 3 to 12
had the lowest loss on test photos, and larger ones made wrong predictions certain."""


class Means:
    """The nearest class mean: the score of class c for x is m_c (x - m_c / 2) / variance.

    Without a photo, its class's mean moves away from it by (x - m) / (n - 1). Nothing of the
    size of the means is kept, as there may be thousands.

    Args:
        blocks: The embeddings; read once, for the variance.
        sums: Their sums.
    """

    name = "class means"
    strengths = np.array([np.inf])

    def __init__(self, blocks: Blocks, sums: Sums) -> None:
        self._sums = sums
        self._center = sums.mean
        squares = sum(float(np.square(rows).sum()) for rows in within(blocks, sums))
        free = max(sums.images - np.count_nonzero(sums.counts), 1)
        lengths = np.concatenate(
            [
                np.square(sums.means[place : place + BLOCK] - self._center).sum(axis=1)
                for place in range(0, len(sums.means), BLOCK)
            ]
        )
        if squares:
            self._precision = free * sums.size / squares
        else:  # half the squared distance of two means is their variance, on average
            variance = float(lengths.sum()) / max(np.count_nonzero(sums.counts) - 1, 1)
            self._precision = UNSCATTERED / variance if variance else 1.0
        self._lengths: Exact = _far(self._precision * lengths, sums)

    def left_out(self, rows: FloatArray, labels: Labels) -> Iterator[Exact]:
        """The outputs (N, C) for photos by the means without each of them."""
        groups = self._sums.groups(labels)
        from_mean = rows - self._sums.means[groups]
        own = self._with_means(self._sums.means[groups] - self._center)
        shifts = self._with_means(from_mean)
        lengths = self._precision * np.square(from_mean).sum(axis=1)
        change = np.zeros(len(groups))
        yield scores(own, self._lengths, shifts, lengths, groups, self._sums.counts, change)

    def layer(self, index: int) -> tuple[Exact, Exact]:
        """Weight (C, D) and bias (C,), for the only strength."""
        assert index == 0
        weight = self._sums.means - self._center
        weight *= self._precision
        return _layer(weight, self._lengths, self._sums)

    def _with_means(self, rows: Exact) -> Exact:
        """Scores (N, C): x P m of each row x (N, D) with the mean m of each class, centered."""
        found: Exact = rows @ self._sums.means.T
        found -= (rows @ self._center)[:, None]
        found *= self._precision
        return found


class LDA:
    """Linear discriminant analysis with a ridge on the covariance (Friedman, 1989), equal priors.

    The covariance within classes has `strength` times its mean variance added to its diagonal.
    Without a photo, the mean of its class moves, and the scatter loses the product of one vector
    with itself, which the formula of Sherman and Morrison (1950) carries to the inverse.

    Args:
        blocks: The embeddings.
        sums: Their sums.
        strengths: The ridges to try.
    """

    name = "LDA"

    def __init__(self, blocks: Blocks, sums: Sums, strengths: Exact) -> None:
        self.strengths = strengths
        self._sums = sums
        self._means = sums.means - sums.mean
        size = self._means.shape[1]
        self._basis: Basis = decompose(lambda: within(blocks, sums), size)
        self._rotated: Exact = self._means @ self._basis.axes
        self._squares: Exact = np.square(self._means).sum(axis=1)
        self._free = max(sums.images - np.count_nonzero(sums.counts), 1)
        mean_square = float(self._basis.squares.sum()) / max(size, 1)
        self._unit = mean_square or 1.0  # 0 where all photos of each class are equal

    def left_out(self, rows: FloatArray, labels: Labels) -> Iterator[Exact]:
        """For each strength, the outputs (N, C) for photos by the fits without each of them."""
        groups, counts = self._sums.groups(labels), self._sums.counts
        from_mean = (rows - self._sums.means[groups]) @ self._basis.axes
        between = self._means[groups] @ self._means.T
        lost = counts[groups] / np.maximum(counts[groups] - 1, 1)
        for strength in self.strengths:
            ridge = strength * self._unit
            inverse = self._free / (self._basis.squares + ridge)
            own = between - (self._rotated[groups] * self._share(ridge)) @ self._rotated.T
            own *= self._free / ridge
            shifts = (from_mean * inverse) @ self._rotated.T
            lengths = (np.square(from_mean) * inverse).sum(axis=1)
            change = lost / np.maximum(self._free - lost * lengths, 1e-9 * self._free)
            yield scores(own, self._lengths(ridge), shifts, lengths, groups, counts, change)

    def layer(self, index: int) -> tuple[Exact, Exact]:
        """Weight (C, D) and bias (C,) for a strength."""
        ridge = self.strengths[index] * self._unit
        weight = (self._rotated * self._share(ridge)) @ self._basis.axes.T
        np.subtract(self._means, weight, out=weight)
        weight *= self._free / ridge
        return _layer(weight, self._lengths(ridge), self._sums)

    def _share(self, ridge: float) -> Exact:
        """The share (M,) of the covariance along each axis; the ridge is the rest.

        Off the axes, where photos of a class do not differ, the covariance is the ridge alone.
        """
        share: Exact = self._basis.squares / (self._basis.squares + ridge)
        return share

    def _lengths(self, ridge: float) -> Exact:
        """M P m (C,) of the means m, with P the inverse covariance."""
        inside = np.square(self._rotated) @ self._share(ridge)
        return _far((self._free / ridge) * (self._squares - inside), self._sums)


def _far(squares: Exact, sums: Sums) -> Exact:
    """Lengths m P m (C,) of the means; for classes without photos, twice the largest of them.

    Their mean is in the middle of all, so that nothing else would keep them from being predicted.
    """
    return np.where(sums.counts > 0, squares, 2 * squares.max(initial=0.0))


def within(blocks: Blocks, sums: Sums) -> Iterator[Exact]:
    """Embeddings (N, D) less the mean of their classes."""
    for rows, labels in blocks():
        yield rows - sums.means[sums.groups(labels)]


def scores(
    means: Exact,
    squares: Exact,
    shifts: Exact,
    lengths: Exact,
    groups: NDArray[np.int64],
    counts: NDArray[np.int64],
    change: Exact,
) -> Exact:
    """Scores (N, C) for photos, each by the means and the covariance of all others.

    With P the inverse covariance, m the means, and d a photo less the mean of its class k:

    Args:
        means: m P m (N, C), of the mean of k with that of each class.
        squares: m P m (C,), of the mean of each class with itself.
        shifts: m P d (N, C).
        lengths: d P d (N,).
        groups: k (N,).
        counts: Photos of each class (C,).
        change: g (N,), where the inverse without the photo is P + g P d d P.
    """
    every = np.arange(len(groups))
    own = shifts[every, groups]
    half = 0.5 * squares
    result: Exact = means + shifts - half
    result += change[:, None] * shifts * ((own + lengths)[:, None] - 0.5 * shifts)
    moved = 1 / np.maximum(counts[groups] - 1, 1)  # of d, by which the mean of k moves away
    longer = (1 + 0.5 * moved) * lengths
    result[every, groups] = half[groups] + own - moved * longer
    result[every, groups] += change * (own - moved * lengths) * (0.5 * own + longer)
    return result


def _layer(weight: Exact, squares: Exact, sums: Sums) -> tuple[Exact, Exact]:
    return weight, -0.5 * squares - weight @ sums.mean
