"""Contents by place, kept in a file or in memory; what comes back is whole or nothing."""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from pocketune.files import write_all, writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAGIC = b"pocketune features 1\n"
_HEADER = len(_MAGIC) + 32
_KEY = 16
OVERHEAD = _KEY + 4
"""Bytes of a record beside its content: a key and a checksum."""
HELD = 150
"""Bytes that Python takes for a record in memory beside the record itself."""


class Store(Protocol):
    """Keeps bytes by place; those that come back may be damaged or of an earlier run."""

    def read(self, place: int, size: int) -> bytes:
        """`size` bytes from a place on; fewer if there are no more."""
        ...

    def write(self, place: int, record: bytes) -> None:
        """Keep a record; raises OSError if that is impossible."""
        ...

    def discard(self) -> None:
        """Give back the room that the records take."""
        ...

    def close(self) -> None:
        """Keep the records for later, if they can be."""
        ...


class FileStore:
    """A file, which is begun again if it belongs to something else.

    The file is read and not mapped: a mapped page would kill the process if the file is truncated
    or the disk is full. What is read often stays in the system's own cache and does not count as
    memory of the process. Nothing is flushed, because a record that is not whole is noticed.

    Args:
        path: The file.
        identity: 32 bytes; a file with another identity is discarded.

    Raises:
        PocketuneError: The file cannot be written.
    """

    def __init__(self, path: Path, identity: bytes) -> None:
        self._path = path
        header = _MAGIC + identity
        with writing(path):
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            try:
                if self._file.read(_HEADER) != header:
                    self._file.truncate(0)
                    self._file.seek(0)
                    write_all(self._file, header)
            except OSError:
                self.discard()
                raise

    def read(self, place: int, size: int) -> bytes:
        """See `Store`."""
        self._file.seek(_HEADER + place)
        return self._file.read(size)

    def write(self, place: int, record: bytes) -> None:
        """See `Store`."""
        self._file.seek(_HEADER + place)
        write_all(self._file, record)

    def discard(self) -> None:
        """See `Store`."""
        self._file.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """See `Store`."""
        self._file.close()


class MemoryStore:
    """Memory of the process."""

    def __init__(self) -> None:
        self._records: dict[int, bytes] = {}

    def read(self, place: int, size: int) -> bytes:
        """See `Store`."""
        return self._records.get(place, b"")[:size]

    def write(self, place: int, record: bytes) -> None:
        """See `Store`."""
        self._records[place] = record

    def discard(self) -> None:
        """See `Store`."""
        self._records.clear()

    def close(self) -> None:
        """See `Store`."""
        self._records.clear()


class Records:
    """Contents, each with a stamp that says what it was computed from.

    A record is its key, a checksum and its content. The key is a hash of the place and the stamp.
    A record that was written in part, damaged, or computed from something else is never given back.

    Args:
        store: Where they are kept; None to keep nothing.
        lost: Called with a reason, once, if the store fails; from then on nothing is kept.
    """

    def __init__(self, store: Store | None, lost: Callable[[str], None]) -> None:
        self._store = store
        self._lost = lost

    def get(self, place: int, size: int, stamp: bytes) -> bytes | None:
        """A content of `size` bytes, or None."""
        if self._store is None:
            return None
        try:
            record = self._store.read(place, OVERHEAD + size)
        except OSError as error:
            self._fail(error)
            return None
        key, content = _key(place, stamp), record[OVERHEAD:]
        whole = record[:OVERHEAD] == key + _checksum(key, content) and len(content) == size
        return content if whole else None

    def put(self, place: int, content: bytes, stamp: bytes) -> None:
        """Keep a content, if possible."""
        if self._store is None:
            return
        key = _key(place, stamp)
        try:
            self._store.write(place, key + _checksum(key, content) + content)
        except OSError as error:
            self._fail(error)

    def discard(self) -> None:
        """Give back the room that all contents take."""
        if self._store is not None:
            self._store.discard()
            self._store = None

    def close(self) -> None:
        """Keep the contents for later, if they can be."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _fail(self, error: OSError) -> None:
        self.discard()
        self._lost(error.strerror or str(error))


def _key(place: int, stamp: bytes) -> bytes:
    return hashlib.blake2b(place.to_bytes(8, "little") + stamp, digest_size=_KEY).digest()


def _checksum(key: bytes, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(key)).to_bytes(4, "little")
