"""Which images train and which validate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pocketune.data.streams import Purpose, random_stream
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from pocketune.data.dataset import ImageDataset, Labels
    from pocketune.files import Skipped

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Splits:
    """Images to train on and to validate with, of the same classes.

    Attributes:
        train: training images.
        val: validation images.
        skipped: files that were left out, sorted by name.
    """

    train: ImageDataset
    val: ImageDataset
    skipped: tuple[Skipped, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.train.classes

    def fingerprint(self) -> str:
        """SHA-256 of the names and labels of both sides, in order."""
        digest = hashlib.sha256()
        for part in (self.train, self.val):
            part.add_to(digest)
        return digest.hexdigest()


def stratify(labels: Labels, *, val_fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Divide indices so that each class gives the same share to validation.

    Each class is drawn by its own random stream, so photos added to one class leave the others'
    division as it was.

    Args:
        labels: int64 (n,), at least 0.
        val_fraction: share that validates. Strictly between 0 and 1, every class of two or more
            images has at least one on either side, and a class of one trains.
        seed: the same seed gives the same division.

    Returns:
        Indices to train on and to validate with, each ascending.

    Raises:
        PocketuneError: for a fraction outside 0 to 1 or a negative seed.
    """
    if not 0 <= val_fraction <= 1:
        raise PocketuneError(f"val_fraction={val_fraction} is no share; give 0 to 1")
    if seed < 0:
        raise PocketuneError(f"seed={seed} is negative; give 0 or more")
    validates = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = random_stream(seed, Purpose.SPLIT, int(label)).permutation(len(members))
        validates[members[order[: _share(len(members), val_fraction)]]] = True
    return np.flatnonzero(~validates), np.flatnonzero(validates)


def _share(count: int, fraction: float) -> int:
    share = int(count * fraction + 0.5)
    return share if fraction in (0, 1) else max(min(share, count - 1), min(1, count - 1))
