"""Photos that occur more than once: an equal file trains and tests, or has two classes."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pocketune.errors import counted
from pocketune.files import ARCHIVE_DAMAGE, sha256, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.data.dataset import ImageDataset, Splits

MOST_PHOTOS = 5_000
"""Photos of a set that is looked through, which takes about a second."""


class _Photo(NamedTuple):
    part: ImageDataset
    number: int

    @property
    def name(self) -> str:
        return self.part.names[self.number]


def describe_copies(splits: Splits) -> str | None:
    """What to say of equal files among the photos; None without any, and of larger sets.

    Files of one size are read and compared by their hashes. One that cannot be read is equal to
    none.
    """
    parts = splits.train, splits.val
    if sum(map(len, parts)) > MOST_PHOTOS:
        return None
    copies = validated = contradicting = 0
    example: list[_Photo] = []
    for photos in _equal(parts):
        example = example or photos
        copies += len(photos) - 1
        trained = [photo for photo in photos if photo.part is splits.train]
        validated += len(photos) - len(trained) if trained else 0
        if not splits.train.labeled.dense:
            labels = [photo.part.labels[photo.number] for photo in photos]
            contradicting += any(not np.array_equal(labels[0], label) for label in labels)
    if not example:
        return None
    first, second = (shown(photo.name, 40) for photo in example[:2])
    what = "photo is a copy of another" if copies == 1 else "photos are copies of others"
    told = f"{copies:,} {what}, such as {second} of {first}"
    if contradicting:
        told += f"; {counted(contradicting, 'photo')} with different labels"
    if validated:
        equal = counted(validated, "validation photo")
        told += f"; {equal} equal to a training photo, so that scores are too good"
    elif not len(splits.val):
        told += "; cross-validation tests a photo by its copies, so that its score is too good"
    return told


def _equal(parts: tuple[ImageDataset, ...]) -> Iterator[list[_Photo]]:
    """The photos of each content that occurs more than once."""
    by_size: dict[int, list[_Photo]] = defaultdict(list)
    for part in parts:
        for number, name in enumerate(part.names):
            with suppress(OSError):
                by_size[part.source.stamp(name)[0]].append(_Photo(part, number))
    for alike in by_size.values():
        by_content: dict[str, list[_Photo]] = defaultdict(list)
        for photo in alike if len(alike) > 1 else ():
            with suppress(OSError, *ARCHIVE_DAMAGE), photo.part.open(photo.number) as file:
                by_content[sha256(file)].append(photo)
        yield from (photos for photos in by_content.values() if len(photos) > 1)
