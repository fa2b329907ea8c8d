"""Labeled images by name; pixels are read when they are wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pocketune.data.sources import PathSource

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from pocketune.data.sources import Source


Labels = npt.NDArray[np.integer[Any]]
"""int64 (n,): the class of each image. Or uint8 (n, attributes): 1 for what it has, else 0."""


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images of a folder or archive, each with its class or its attributes.

    Attributes:
        source: where the files lie.
        classes: names of the classes, or of the attributes, in the order of the labels.
        names: files, relative to the root.
        labels: int64 (n,), an index into ``classes``, -1 where it is unknown; or uint8
            (n, classes), 1 for each attribute that an image has and 0 for the others.
    """

    source: Source
    classes: tuple[str, ...]
    names: tuple[str, ...]
    labels: Labels

    def __len__(self) -> int:
        return len(self.names)

    @property
    def has_attributes(self) -> bool:
        """Whether an image has any number of attributes, instead of one class."""
        return self.labels.ndim == 2

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
    return ImageDataset(PathSource(), (), tuple(names), labels)
