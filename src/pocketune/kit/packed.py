"""A file in a .zip, which is read where a file in a folder can be."""

from __future__ import annotations

import contextlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOM, _EXPANSION = 1 << 20, 100
"""Bytes that a file may have when it is unpacked: so many, and so many for each packed one. Trained
values hardly shrink when they are packed, and logs twentyfold."""


@dataclass(frozen=True)
class Packed:
    """A file in a .zip.

    Attributes:
        archive: The .zip.
        name: Name of the file in it.
    """

    archive: Path
    name: str

    @contextlib.contextmanager
    def open(self, mode: str = "rb") -> Iterator[BinaryIO]:  # noqa: ARG002
        """The file as a stream of bytes, unpacked while it is read; `mode` is that of a path.

        Raises:
            PocketuneError: It would unpack to far more bytes than a file of a run.
            BadZipFile: The .zip is damaged, as may be raised while the stream is read.
        """
        with zipfile.ZipFile(self.archive) as archive:
            entry = archive.getinfo(self.name)
            if entry.file_size > _ROOM + _EXPANSION * entry.compress_size:
                raise PocketuneError(
                    f"{self} unpacks {entry.compress_size:,} bytes to {entry.file_size:,}, which "
                    "no file of a run does; copy the run again"
                )
            with archive.open(entry) as stream:
                yield cast("BinaryIO", stream)

    def read_bytes(self) -> bytes:
        """All bytes of the file; see `open`."""
        with self.open() as stream:
            return stream.read()

    def __str__(self) -> str:
        return f"{self.name.split('/')[-1]} in {self.archive}"


RunFile = Path | Packed
"""A file of a run, in its folder or in a .zip of it."""
