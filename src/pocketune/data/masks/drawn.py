"""Files together with masks that are drawn when they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, ClassVar, NamedTuple

from pocketune.data.examples import Examples
from pocketune.data.images.cost import DRAWN_MASK_BYTES
from pocketune.data.labels.layouts import PARTS
from pocketune.data.masks.outlines import BACKGROUND
from pocketune.data.names import Names
from pocketune.data.sources import Source
from pocketune.errors import PocketuneError
from pocketune.files import shown

_MOST = 254
"""Categories that masks have values for, beside the background and what is ignored."""


class Drawn(NamedTuple):
    """Images whose masks are drawn.

    Attributes:
        source: The files, with a mask for each image.
        examples: The images, with the masks as labels.
        names: The names of the values of the masks, as in `classes.txt`.
        unlabeled: Files beside the images that nothing is drawn for.
    """

    source: DrawnSource
    examples: Examples
    names: bytes
    unlabeled: Names = Names()


class DrawnSource(ABC):
    """The files of another source, and masks; see `Source`.

    Attributes:
        files: The other source.
        mask_bytes: Bytes for each pixel of a mask while it is read.
    """

    mask_bytes: ClassVar[int] = DRAWN_MASK_BYTES

    def __init__(self, source: Source) -> None:
        self.files = source

    @abstractmethod
    def file_of(self, name: str) -> str | None:
        """The file that the mask of a name is drawn from; None if the name is not of a mask."""

    @abstractmethod
    def draw(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A mask as an image file."""

    @property
    def root(self) -> Path:
        """See `Source`."""
        return self.files.root

    def names(self) -> Names:
        """See `Source`."""
        return self.files.names()

    def empty_folders(self) -> list[str]:
        """See `Source`."""
        return self.files.empty_folders()

    def beginning(self, name: str, size: int) -> bytes:
        """See `Source`."""
        return self.files.beginning(name, size)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """See `Source`."""
        is_mask = self.file_of(name) is not None
        with self.draw(name) if is_mask else self.files.open(name) as opened:
            yield opened

    def stamp(self, name: str) -> tuple[int, ...]:
        """See `Source`; a mask changes with the file that it is drawn from."""
        return self.files.stamp(self.file_of(name) or name)


def values_of(labels: Iterable[str], where: str) -> dict[str, int]:
    """The value of the background, 0, and those of the categories that have an object.

    Raises:
        PocketuneError: There are more categories than masks have values for.
    """
    listed = dict.fromkeys([BACKGROUND, *labels])
    if len(listed) - 1 > _MOST:
        raise PocketuneError(
            f"{shown(where)} has objects of {len(listed) - 1} categories, but masks have values "
            f"for {_MOST}; merge some of them"
        )
    return {label: value for value, label in enumerate(listed)}


def list_of(values: dict[str, int]) -> bytes:
    """The names of values, as in `classes.txt`; what is no text in UTF-8 becomes a `?`."""
    lines = "".join(f"{value}={label}\n" for label, value in values.items())
    return lines.encode("utf-8", "replace")


def part_of(folders: Iterable[str]) -> str | None:
    """The part that the last of these folders names that is one; None without."""
    inside = [PARTS[each.casefold()] for each in folders if each.casefold() in PARTS]
    return inside[-1] if inside else None
