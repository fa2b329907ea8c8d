"""What the photos of a run's classes look like, to tell photos of none of them.

A photo is as unknown as the angle between its embedding and the nearest class mean is large. The
angle is taken around the mean of all classes, and after the directions in which photos of one class
differ most are shrunk. This is the cosine form of the Mahalanobis distance of Lee et al. (2018,
section 2.1), with the covariance in a few directions, shrunk towards a multiple of the identity.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pocketune.arrays import FloatArray, State, distinct
from pocketune.device.head.basis import decompose
from pocketune.device.head.sums import Exact
from pocketune.errors import PocketuneError
from pocketune.kit.names import KNOWN
from pocketune.kit.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from pocketune.kit.packed import RunFile

KEPT = 0.95
"""Share of the photos of known classes that are accepted as such."""

DIRECTIONS, SHRINKAGE = 16, 0.3
"""Chosen by experiment, as the area under the ROC curve for flowers of other kinds."""

MOST = 1 << 22
"""Values of the embeddings of two photos of each class, beyond which classes are not described."""

_PHOTOS, _VALUES = 600, 1 << 18
"""Limits of the photos that are looked at, and of the values of their embeddings."""
_LIBRARY, _BYTES = 4_000_000, 56
"""Bytes of the fit: for numpy's linear algebra, and for each of these values."""
_FOLDS = 5
_ENOUGH = 20
"""Validation photos from which a quantile is taken."""
_LEAST = 1e-6
"""The least threshold: photos that are all alike have no distances."""
_KIND = "known classes"


@dataclass(frozen=True, eq=False)
class Known:
    """The classes of a run by their embeddings.

    Attributes:
        center: Mean (D,) of the class means.
        directions: Orthonormal directions (R, D) in which photos of one class differ most.
        gains: What is added (R,) along each direction, relative to 1: between -1 and 0.
        means: Class means (K, D) after the same map, of length 1.
        threshold: Distance up to which a photo is accepted, a scalar.
    """

    center: FloatArray
    directions: FloatArray
    gains: FloatArray
    means: FloatArray
    threshold: FloatArray

    @classmethod
    def fit(
        cls,
        embeddings: FloatArray,
        labels: NDArray[np.int64],
        held_out: FloatArray | None = None,
        kept: float = KEPT,
    ) -> Known:
        """Describe classes by embeddings of their photos.

        Args:
            embeddings: (N, D), of training photos.
            labels: (N,), the class of each; classes without photos have no mean.
            held_out: Embeddings of validation photos, which choose the threshold. If there are
                fewer than 20, the training photos do, each fifth of them left out in turn; the only
                photo of a class is not.
            kept: Share of the photos that the threshold accepts.
        """
        known = cls._described(embeddings, labels)
        if held_out is not None and len(held_out) >= _ENOUGH:
            distances = known.distances(held_out)
        else:
            distances = _left_out(embeddings, labels)
        # `np.quantile` would import masked arrays, as `np.unique` does: see `distinct`.
        place = kept * (len(distances) - 1)
        threshold = np.interp(place, np.arange(len(distances)), np.sort(distances))
        return replace(known, threshold=np.array(max(threshold, _LEAST), np.float32))

    @classmethod
    def _described(cls, embeddings: FloatArray, labels: NDArray[np.int64]) -> Known:
        """The description, without a threshold."""
        values = embeddings.astype(np.float64)
        classes, index = np.unique(labels, return_inverse=True)
        means = np.stack([values[index == k].mean(axis=0) for k in range(len(classes))])
        center = means.mean(axis=0)
        for k, mean in enumerate(means):
            values[index == k] -= mean
        axes, squares = _principal(values)
        spread = squares / max(1, len(values) - len(classes))
        rank = len(axes)
        shrunk = SHRINKAGE * spread.sum() / values.shape[1]
        rest = spread[rank:].sum() / max(1, values.shape[1] - rank)
        along = (1 - SHRINKAGE) * spread[:rank] + shrunk
        across = (1 - SHRINKAGE) * rest + shrunk
        gains = np.sqrt(across / np.maximum(along, 1e-30)) - 1 if across > 0 else 0 * along
        parts = [each.astype(np.float32) for each in (center, axes, gains)]
        mapped = _mapped(means, parts[0], parts[1], parts[2])
        return cls(parts[0], parts[1], parts[2], mapped, np.array(np.inf, np.float32))

    def distances(self, embeddings: FloatArray) -> FloatArray:
        """One minus the cosine (N,) of the angle to the nearest class mean, for (N, D)."""
        mapped = _mapped(embeddings, self.center, self.directions, self.gains)
        cosines: FloatArray = mapped @ self.means.T
        nearest: FloatArray = 1 - cosines.max(axis=1)
        return np.maximum(nearest, 0)  # rounding gives equal photos a little less

    def tensors(self) -> State:
        """All values by name."""
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, FloatArray], where: str) -> Known:
        """The description with these values.

        Raises:
            PocketuneError: They do not fit together.
        """
        try:
            known = cls(**{name: tensors[name] for name in _FIELDS})
            size = known.center.shape
            rank = known.gains.shape
            fits = len(size) == len(rank) == 1 and known.threshold.shape == ()
            fits &= known.directions.shape == (*rank, *size) and known.means.shape[1:] == size
        except KeyError:
            fits = False
        if not fits:
            raise PocketuneError(f"{where} does not describe known classes; train the run again")
        return known

    def save(self, folder: Path, kit: str, step: int) -> None:
        """Write the file of a run; `kit` and `step` are those of the run's best values."""
        metadata = {"kit": kit, "step": step}
        write_tensors(folder / KNOWN, self.tensors(), kind=_KIND, metadata=metadata)

    @classmethod
    def load(cls, path: RunFile | None, kit: str, step: int) -> Known | None:
        """Read the file of a run; None if there is none, or if it is of other values."""
        if path is None:
            return None
        tensors, metadata = read_tensors(path, kind=_KIND)
        fits = (metadata.get("kit"), metadata.get("step")) == (kit, step)
        return cls.of_tensors(tensors, str(path)) if fits else None


_FIELDS = tuple(Known.__dataclass_fields__)


def described_photos(classes: int, size: int) -> int:
    """Photos that describe classes by embeddings of `size` values: at least two of each class.

    0 where these have too many values; then the classes are not described.
    """
    least = 2 * classes
    return 0 if least * size > MOST else max(min(_PHOTOS, _VALUES // size), least)


def description_bytes(classes: int, size: int, photos: int) -> int:
    """Bytes that `Known.fit` takes for embeddings of `size` values of so many photos."""
    return _LIBRARY + _BYTES * min(described_photos(classes, size), photos) * size


def _mapped(
    values: NDArray[np.floating], center: FloatArray, directions: FloatArray, gains: FloatArray
) -> FloatArray:
    """Vectors (N, D) around the center, with some directions shrunk, of length 1."""
    centered = values - center
    mapped = centered + (centered @ directions.T * gains) @ directions
    lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
    result: FloatArray = (mapped / np.maximum(lengths, 1e-30)).astype(np.float32)
    return result


def _principal(values: Exact) -> tuple[Exact, Exact]:
    """The first directions (R, D) of the largest variance of rows (N, D), and all sums of squares.

    Rows or columns are decomposed, whichever are fewer; both have the same sums of squares.
    """
    wide = len(values) < values.shape[1]
    basis = decompose(lambda: iter([values.T if wide else values]), min(values.shape))
    squares, axes = basis.squares[::-1], basis.axes[:, ::-1][:, :DIRECTIONS]
    if wide:
        axes = values.T @ axes / np.sqrt(squares[: axes.shape[1]])
    return axes.T, squares


def _left_out(embeddings: FloatArray, labels: NDArray[np.int64]) -> FloatArray:
    """The distance (M,) of each photo by a description that it is not in.

    The only photo of a class is in all of them: without it, its class would be as far as any other.
    """
    folds = np.full(len(labels), _FOLDS)
    for label in distinct(labels):
        own = np.flatnonzero(labels == label)
        if len(own) > 1:
            folds[own] = np.arange(len(own)) % _FOLDS
    distances = [
        Known._described(embeddings[folds != fold], labels[folds != fold]).distances(
            embeddings[folds == fold]
        )
        for fold in distinct(folds)
        if fold < _FOLDS
    ]
    # A single photo of each class says nothing of the others: accept all.
    return np.concatenate(distances) if distances else np.full(1, 2, np.float32)
