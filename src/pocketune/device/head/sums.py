"""What the closed forms need to know of the embeddings first: counts, means and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray, distinct
from pocketune.tasks import Labels, Task

Blocks = Callable[[], Iterator[tuple[FloatArray, Labels]]]
"""Gives embeddings (N, D) and labels (N, ...) block by block, the same ones at every call."""

Exact = NDArray[np.float64]

BLOCK = 64
"""Photos in a block; a few blocks of exact values are in memory at once."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over all photos; the memory is that of C x D values.

    Attributes:
        task: What is learned.
        counts: Photos (G,) of each group: of each class, or all in one group.
        means: Mean embedding (G, D) of each group; of one without photos, the mean of the others.
        targets: Mean target (K,) of the groups that have photos, each group counted alike.
    """

    task: Task
    counts: NDArray[np.int64]
    means: Exact
    targets: Exact

    @property
    def images(self) -> int:
        """Number of photos."""
        return int(self.counts.sum())

    @property
    def size(self) -> int:
        """Values of an embedding."""
        return len(self.means[0])

    @property
    def by_class(self) -> bool:
        """Whether groups are classes, one for each output."""
        return len(self.counts) == len(self.targets) > 1

    @property
    def mean(self) -> Exact:
        """The mean (D,) of the groups' means; each group counts alike."""
        mean: Exact = self.means.mean(axis=0)
        return mean

    @property
    def weights(self) -> Exact:
        """The weight (G,) of a photo of each group: groups weigh alike, and photos 1 on average."""
        groups = np.count_nonzero(self.counts)
        weights: Exact = self.images / (groups * np.maximum(self.counts, 1.0))
        return weights

    def groups(self, labels: Labels) -> NDArray[np.int64]:
        """The group (N,) of each photo."""
        found = self.task.strata(labels)
        return np.zeros(len(labels), np.int64) if found is None else found

    def testable(self, labels: Labels) -> NDArray[np.bool_]:
        """Whether (N,) each photo can be left out.

        The only photo of a class cannot: without it, the class is unknown.
        """
        found: NDArray[np.bool_] = (self.counts[self.groups(labels)] > 1) | (len(self.counts) == 1)
        return found


def add_up(blocks: Blocks, task: Task) -> Sums:
    """One pass over the embeddings; without photos, the sums of one group are 0."""
    outputs, seen = len(task.classes), list[Labels]()
    counts, embeddings = np.zeros(1, np.int64), np.zeros((1, 1))
    for rows, labels in blocks():
        groups = task.strata(labels)
        if not counts.any():
            size = 1 if groups is None else outputs
            counts, embeddings = np.zeros(size, np.int64), np.zeros((size, rows.shape[1]))
        if groups is None:
            groups = np.zeros(len(labels), np.int64)
        counts += np.bincount(groups, minlength=len(counts))
        for group in distinct(groups):
            embeddings[group] += rows[groups == group].sum(axis=0, dtype=np.float64)
        seen.append(labels)
    embeddings /= np.maximum(counts, 1)[:, None]
    if not counts.all():
        embeddings[counts == 0] = embeddings.sum(axis=0) / max(1, np.count_nonzero(counts))
    sums = Sums(task, counts, embeddings, np.zeros(outputs))
    for labels in seen:  # not by group, which would take a value for each pair of classes
        targets = task.targets(labels)
        assert targets is not None
        sums.targets[:] += sums.weights[sums.groups(labels)] @ targets
    if seen:
        sums.targets[:] /= sums.images
    return sums
