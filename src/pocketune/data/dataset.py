"""Labeled images by name, and which of them train and which validate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pocketune.data.sources import PathSource
from pocketune.data.streams import Purpose, random_stream
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pocketune.data.sources import Source
    from pocketune.files import Skipped
    from pocketune.tasks import Labels, Task


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images of a folder or archive, each with its label.

    Attributes:
        source: where the files lie.
        names: files, relative to the root.
        labels: (n, ...), as the task has made them; -1 where there is no task.
        task: what the labels mean; None for images without labels.
    """

    source: Source
    names: tuple[str, ...]
    labels: Labels
    task: Task | None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the task's classes; empty without labels."""
        return self.task.classes if self.task else ()

    @property
    def labeled(self) -> Task:
        """The task of labeled images.

        Raises:
            PocketuneError: the images have no labels.
        """
        if self.task is None:
            raise PocketuneError("these images have no labels; load them with load_splits")
        return self.task

    @property
    def root(self) -> Path:
        """The folder or archive that the names are relative to."""
        return self.source.root

    def open(self, index: int) -> AbstractContextManager[IO[bytes]]:
        """The image's file, to be used in a ``with`` block; raises OSError if it is gone."""
        return self.source.open(self.names[index])

    def read(self, index: int) -> bytes:
        """The whole of the image's file; raises OSError if it is gone."""
        with self.open(index) as file:
            return file.read()

    def add_to(self, digest: hashlib._Hash) -> None:
        """Take names and labels, in order, into a hash, as of ``hashlib``."""
        for name in self.names:
            digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(self.labels.tobytes())

    def subset(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> ImageDataset:
        """The images at ``indices``, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        names = tuple(self.names[i] for i in chosen)
        return replace(self, names=names, labels=self.labels[chosen])


def unlabeled(names: Sequence[str]) -> ImageDataset:
    """A dataset of the image paths of ``open_images``, without labels, for prediction."""
    labels = np.full(len(names), -1, dtype=np.int64)
    return ImageDataset(PathSource(), tuple(names), labels, task=None)


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
