"""Read files that list photos or classes whole, since they are small."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading, shown

if TYPE_CHECKING:
    from pocketune.data.sources import Source

_LARGEST = 128 << 20
"""Most bytes of a file that lists photos or classes: a line for each of a million photos has 60."""


def read_list(source: Source, name: str) -> bytes:
    """The bytes of a list.

    Raises:
        PocketuneError: It cannot be read, or is too large to be one.
    """
    with reading(shown(name), *ARCHIVE_DAMAGE):
        _check_size(source.stamp(name)[0], name)
        with source.open(name) as file:
            return content(file, name)


def content(file: IO[bytes], name: str) -> bytes:
    """The bytes of an open list.

    Raises:
        PocketuneError: It is too large to be one.
    """
    with suppress(OSError):  # a member of an archive is not a file of its own
        _check_size(os.fstat(file.fileno()).st_size, name)
    found = file.read(_LARGEST + 1)
    _check_size(len(found), name)
    return found


def _check_size(size: int, name: str) -> None:
    """Refuse a file that is too large to be a list; before it is read, where its size is known."""
    if size > _LARGEST:
        raise PocketuneError(
            f"{shown(name)} is larger than the {_LARGEST >> 20} MB that a list of photos may "
            "have; check that it is one"
        )
