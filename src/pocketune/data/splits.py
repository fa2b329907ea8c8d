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
    from pocketune.data.dataset import ImageDataset
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


def stratify(groups: Indices, *, val_fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Divide indices so that each group gives the same share to validation.

    Each group is drawn by its own random stream, so photos added to one leave the others' division
    as it was.

    Args:
        groups: int64 (n,), at least 0; with one class an image, its class.
        val_fraction: share that validates. Strictly between 0 and 1, every group of two or more
            images has at least one on either side, and a group of one trains.
        seed: the same seed gives the same division.

    Returns:
        Indices to train on and to validate with, each ascending.

    Raises:
        PocketuneError: for a fraction outside 0 to 1 or a negative seed.
    """
    if not 0 <= val_fraction <= 1:
        raise PocketuneError(f"val_fraction={val_fraction} must be between 0 and 1")
    if seed < 0:
        raise PocketuneError(f"seed={seed} is negative; give 0 or more")
    validates = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        order = random_stream(seed, Purpose.SPLIT, int(group)).permutation(len(members))
        validates[members[order[: _share(len(members), val_fraction)]]] = True
    return np.flatnonzero(~validates), np.flatnonzero(validates)


def _share(count: int, fraction: float) -> int:
    share = int(count * fraction + 0.5)
    return share if fraction in (0, 1) else max(min(share, count - 1), min(1, count - 1))
