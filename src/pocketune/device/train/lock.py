"""One process to a run: a lock that the system takes back when the process dies."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, BinaryIO

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FAR = 1 << 30
"""Windows locks bytes, and keeps others from reading them: one far behind the end."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the only lock on a file, which is made where it does not exist.

    Where the file system knows no locks, none is held.

    Raises:
        PocketuneError: Another process holds it, or the file cannot be written.
    """
    try:
        file = path.open("ab")
    except OSError as error:
        raise PocketuneError(f"could not write {path}: {error.strerror or error}") from error
    with file:
        try:
            _lock(file)
        except (BlockingIOError, PermissionError) as error:
            raise PocketuneError(f"another process is training the run in {path.parent}") from error
        except OSError:
            pass
        yield


def _lock(file: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
