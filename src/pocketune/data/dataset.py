"""Labeled images by name; pixels are read when they are wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pocketune.data.sources import PathSource
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pocketune.data.sources import Source
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
