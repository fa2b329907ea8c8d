"""Files that one process at a time may hold; the system releases them if it dies."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from pocketune.errors import PocketuneError
from pocketune.files import regular, writing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FAR = 1 << 30
"""The byte to lock on Windows. Others cannot read a locked byte, so it is far behind the end."""


class AnotherProcess(PocketuneError):  # noqa: N818 - the name says what happened
    """Another process holds a lock."""


@contextmanager
def locked(path: Path, busy: str) -> Iterator[bool]:
    """Lock a file, which is created if it does not exist.

    Args:
        path: The file.
        busy: What to say if another process holds it.

    Yields:
        Whether it is locked; it is not on a file system without locks.

    Raises:
        AnotherProcess: Another process holds it.
        PocketuneError: The file cannot be written.
    """
    with writing(path):
        file = regular(path).open("ab")
    with file:
        is_locked = True
        try:
            _lock(file)
        except (BlockingIOError, PermissionError) as error:
            raise AnotherProcess(busy) from error
        except OSError:
            is_locked = False
        if not _is_at(file, path):  # it was removed, and perhaps created again, before the lock
            raise AnotherProcess(f"another process has just removed {path}")
        yield is_locked


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _lock(file: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
