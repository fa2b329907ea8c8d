"""Labeled images by name, and their division into training and validation."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pocketune.arrays import distinct
from pocketune.data.names import Indices, Names
from pocketune.data.sources import PathSource
from pocketune.data.streams import Purpose, random_stream
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pocketune.data.images.cost import Decoding
    from pocketune.data.masks.numbered import Masks
    from pocketune.data.sources import Source
    from pocketune.files import Skipped
    from pocketune.tasks import Labels, Task


VAL_FRACTION = 0.2
FEWEST = 10
"""A class of fewer photos gives none to validation by default: they are worth more in training."""


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images of a folder or archive, each with its label.

    Attributes:
        source: The folder or archive that holds the files.
        names: File names, relative to the root.
        labels: (n, ...), as the task encodes them; -1 without a task.
        task: What the labels mean; None for images without labels.
        masks: Reads the masks that the labels name; None for other labels.
    """

    source: Source
    names: Names
    labels: Labels
    task: Task | None
    masks: Masks | None = None

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
            PocketuneError: The images have no labels.
        """
        if self.task is None:
            raise PocketuneError("these images have no labels; load them with load_splits")
        return self.task

    @property
    def groups(self) -> Indices:
        """The group (n,) of each image: its class, or 0 where images have no single class."""
        groups = self.task.strata(self.labels) if self.task else None
        return np.zeros(len(self), np.int64) if groups is None else groups

    @property
    def root(self) -> Path:
        """The folder or archive that the names are relative to."""
        return self.source.root

    def open(self, index: int) -> AbstractContextManager[IO[bytes]]:
        """The image's file, for a `with` block; raises OSError if it no longer exists."""
        return self.source.open(self.names[index])

    def read(self, index: int) -> bytes:
        """All bytes of the image's file; raises OSError if it no longer exists."""
        with self.open(index) as file:
            return file.read()

    def stamp(self, index: int, name: str) -> bytes | None:
        """Bytes that differ once the image or its mask has changed; None if one is missing.

        Args:
            index: The image.
            name: Its name.
        """
        try:
            found = [name, *self.source.stamp(name)]
            if self.masks is not None:
                found += self.masks.source.stamp(str(self.labels[index]["mask"]))
        except OSError:
            return None
        return "\0".join(map(str, found)).encode("utf-8", "surrogatepass")

    def label(self, index: int, width: int, height: int) -> Labels:
        """The label of an image of this size: for masks, its pixels (height, width).

        Raises:
            UnreadableImage: The mask cannot be read.
        """
        if self.masks is None:
            label: Labels = self.labels[index]
            return label
        return self.masks.read(str(self.labels[index]["mask"]), width, height)

    def add_to(self, digest: hashlib._Hash) -> None:
        """Add names and labels, in order, to a hash of `hashlib`."""
        for name in self.names:
            digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(self.labels.tobytes())
        if self.masks is not None:
            digest.update(self.masks.numbers.tobytes())

    def subset(self, indices: Sequence[int] | npt.NDArray[np.int64]) -> ImageDataset:
        """The images at `indices`, in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(self, names=self.names.take(chosen), labels=self.labels[chosen])

    def spread(self, count: int) -> Indices:
        """Positions of `count` images or up to twice as many, evenly spread over each group.

        In a table that lists the classes in turn, every so many rows may be of one class.
        """
        return np.sort(self._by_group[:: max(1, len(self) // count)])

    def thinned(self, most: int) -> ImageDataset:
        """At most so many of the images, evenly spread over each group."""
        if len(self) <= most:
            return self
        places = np.linspace(0, len(self) - 1, most).round().astype(np.int64)
        return self.subset(np.sort(self._by_group[places]))

    @property
    def _by_group(self) -> Indices:
        """Positions (n,) of the images, those of each group in a row."""
        return np.argsort(self.groups, kind="stable")


def unlabeled(names: Sequence[str]) -> ImageDataset:
    """A dataset of the image paths of `open_images`, without labels, for prediction."""
    labels = np.full(len(names), -1, dtype=np.int64)
    return ImageDataset(PathSource(), Names(names), labels, task=None)


@dataclass(frozen=True, eq=False)
class Splits:
    """Images for training and for validation, of the same classes.

    Attributes:
        train: Training images.
        val: Validation images.
        skipped: Files that were skipped, sorted by name.
        decoding: What decoding the images takes; None if it is not known.
        divided: Whether the user has divided them.
    """

    train: ImageDataset
    val: ImageDataset
    skipped: tuple[Skipped, ...]
    decoding: Decoding | None = None
    divided: bool = False

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        return self.train.classes

    def thinned(self, most: int | None) -> Splits:
        """At most so many of the images of each part, evenly spread; None for all."""
        if most is None:
            return self
        return replace(self, train=self.train.thinned(most), val=self.val.thinned(most))

    def fingerprint(self) -> str:
        """SHA-256 of the names and labels of both parts, in order."""
        digest = hashlib.sha256()
        for part in (self.train, self.val):
            part.add_to(digest)
        return digest.hexdigest()


def imbalance(groups: Indices) -> float:
    """Images of the largest group for each of the smallest; 1 without images.

    >>> imbalance(np.array([0, 0, 0, 2]))
    3.0
    """
    counts = np.bincount(groups)
    counts = counts[counts > 0]
    return float(counts.max() / counts.min()) if len(counts) else 1.0


def stratify(groups: Indices, *, val_fraction: float | None, seed: int) -> tuple[Indices, Indices]:
    """Divide indices so that each group gives the same fraction to validation.

    Each group is drawn from its own random stream, so adding photos to one group does not change
    the division of the others.

    Args:
        groups: int64 (n,), at least 0; for classification, the class of each image.
        val_fraction: Fraction for validation. If it is strictly between 0 and 1, every group of two
            or more images has at least one in each part, and a group of one is for training. None
            is a fifth of each group of ten or more.
        seed: The same seed gives the same division.

    Returns:
        Indices for training and for validation, each ascending.

    Raises:
        PocketuneError: The fraction is outside 0 to 1, or the seed is negative.
    """
    if val_fraction is not None and not 0 <= val_fraction <= 1:
        raise PocketuneError(f"val_fraction={val_fraction} must be between 0 and 1")
    if seed < 0:
        raise PocketuneError(f"seed={seed} is negative; give 0 or more")
    validates = np.zeros(len(groups), dtype=bool)
    for group in distinct(groups):
        members = np.flatnonzero(groups == group)
        order = random_stream(seed, Purpose.SPLIT, int(group)).permutation(len(members))
        validates[members[order[: _share(len(members), val_fraction)]]] = True
    return np.flatnonzero(~validates), np.flatnonzero(validates)


def _share(count: int, fraction: float | None) -> int:
    if fraction is None:
        fraction = VAL_FRACTION if count >= FEWEST else 0.0
    share = int(count * fraction + 0.5)
    return share if fraction in (0, 1) else max(min(share, count - 1), min(1, count - 1))
