"""Photos that are nearer to the mean of another class than to that of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray


class Strays(NamedTuple):
    """The nearest class of each photo.

    Attributes:
        nearest: int64 (N,), the class of the nearest mean.
        doubt: float64 (N,), distance to the photo's own mean relative to that of the nearest other
            class; above 1 if the other class is nearer, infinite if its mean is the photo itself,
            0 if the photo cannot be judged.
    """

    nearest: NDArray[np.int64]
    doubt: NDArray[np.float64]


def find_strays(embeddings: FloatArray, classes: NDArray[np.int64]) -> Strays:
    """Compare each photo with the mean embedding of each class.

    A photo does not count in the mean of its own class, or no photo of a small class would stray.
    The only photo of a class cannot be judged.

    Args:
        embeddings: (N, D).
        classes: int64 (N,), from 0.
    """
    count = int(classes.max(initial=0)) + 1
    exact = embeddings.astype(np.float64)
    sizes = np.bincount(classes, minlength=count)
    sums = np.zeros((count, exact.shape[1]))
    np.add.at(sums, classes, exact)
    means = sums / np.maximum(sizes, 1)[:, None]
    distances = _distances(exact, means)
    distances[:, sizes == 0] = np.inf
    rows, own = np.arange(len(classes)), sizes[classes]
    # Without the photo x itself, the mean m of n photos is (n m - x) / (n - 1), which is
    # n / (n - 1) times as far from x.
    others = distances.copy()
    others[rows, classes] = np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        mine = distances[rows, classes] * (own / (own - 1))
        doubt = mine / others.min(axis=1, initial=np.inf)
    doubt[(own < 2) | np.isnan(doubt)] = 0
    nearest = np.where(doubt > 1, others.argmin(axis=1), classes)
    return Strays(nearest.astype(np.int64), doubt)


def _distances(points: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean distances (N, classes)."""
    squares = (points**2).sum(1)[:, None] - 2 * points @ means.T + (means**2).sum(1)
    distances: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0))
    return distances
