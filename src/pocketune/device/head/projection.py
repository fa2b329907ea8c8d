"""The directions in which embeddings differ most: a fit in these takes little memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pocketune.arrays import FloatArray
from pocketune.device.head.basis import decompose
from pocketune.device.head.sums import BLOCK, Blocks, Exact, Sums
from pocketune.tasks import Labels

RANK = 384
"""Directions that are kept. With more, a classifier gains nothing (docs/head.md)."""


class Projection(NamedTuple):
    """A subspace of the embeddings.

    Attributes:
        center: Their mean (D,), where each class counts alike.
        axes: Orthonormal directions (D, M), float32.
    """

    center: Exact
    axes: FloatArray

    @classmethod
    def of(cls, blocks: Blocks, sums: Sums) -> Projection:
        """The subspace of the largest variance, from one pass over the embeddings.

        It is spanned by random combinations of them (Halko et al., 2011, algorithm 4.1), which are
        all that there is of at most `RANK` photos.
        """
        rank, center, rng = min(RANK, sums.images), sums.mean, np.random.default_rng(0)
        found = np.zeros((sums.size, rank), np.float32)
        for rows, labels in blocks():
            roots = np.sqrt(sums.weights[sums.groups(labels), None])
            drawn = rng.standard_normal((len(rows), rank), np.float32)
            found += (roots * (rows - center)).astype(np.float32).T @ drawn
        return cls(center, orthonormal(found))

    def apply(self, blocks: Blocks) -> Blocks:
        """The coordinates (N, M) of embeddings."""

        def give() -> Iterator[tuple[FloatArray, Labels]]:
            for rows, labels in blocks():
                yield (rows - self.center).astype(np.float32) @ self.axes, labels

        return give

    def layer(self, weight: Exact, bias: Exact) -> tuple[FloatArray, Exact]:
        """The layer for embeddings that does as a layer (K, M) and (K,) for coordinates."""
        full: FloatArray = weight.astype(np.float32) @ self.axes.T
        return full, bias - weight @ (self.center @ self.axes)


def orthonormal(vectors: FloatArray) -> FloatArray:
    """An orthonormal basis (D, M) of vectors (D, R), in their memory (Stathopoulos and Wu, 2002).

    In half the memory of numpy's QR decomposition, which is in float64.
    """
    places = range(0, len(vectors), BLOCK)
    basis = decompose(
        lambda: (vectors[p : p + BLOCK].astype(np.float64) for p in places), vectors.shape[1]
    )
    scaled = basis.axes / np.sqrt(basis.squares)
    axes = vectors[:, : scaled.shape[1]]
    for place in places:
        axes[place : place + BLOCK] = vectors[place : place + BLOCK] @ scaled
    return axes


def projection_bytes(images: int, size: int) -> int:
    """Bytes of the axes of a `Projection`; 0 for embeddings that need none."""
    return 4 * size * min(RANK, images) if size > RANK else 0
