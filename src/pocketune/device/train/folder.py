"""The folder of a run: a copy of its kit, what the run adds to it, and a lock on all of it.

The system takes the lock back when the process dies.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from pocketune.errors import PocketuneError
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, METRICS, RUN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FAR = 1 << 30
"""Windows locks bytes and keeps others from reading them: lock one far behind the end."""


@contextmanager
def new_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a new run, or take over one whose run never got to its first checkpoint.

    The metrics file comes first and marks the folder as a run's. It is locked until the context
    ends.

    Raises:
        PocketuneError: The folder holds a run, or anything else, or cannot be made.
    """
    check_new_run_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(folder, error) from error
    with _locked(folder / METRICS):
        yield


@contextmanager
def open_run_folder(folder: Path) -> Iterator[Kit]:
    """The kit of the run in a folder, which no other process trains until the context ends.

    Raises:
        PocketuneError: There is no run with a checkpoint in the folder, another process trains
            it, or its kit is damaged.
    """
    if not (folder / LAST).is_file():
        raise PocketuneError(f"there is no run to resume in {folder}: it has no {LAST}")
    with _locked(folder / METRICS):
        yield Kit.open(folder)


def check_new_run_folder(folder: Path) -> None:
    """Look whether a new run may have the folder; changes nothing.

    Raises:
        PocketuneError: The folder holds a run, or anything else, or cannot be read.
    """
    if folder.is_file():
        raise PocketuneError(f"{folder} is a file: choose a folder for the run")
    try:
        names = {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot_make(folder, error) from error
    if LAST in names:
        raise PocketuneError(
            f"{folder} already contains a run: resume it, or choose another folder for a new one"
        )
    left_over = METRICS in names and all(_is_ours(name) for name in names)
    if names and not left_over:
        raise PocketuneError(f"{folder} is not empty: choose a new folder for the run")


def _cannot_make(folder: Path, error: OSError) -> PocketuneError:
    return PocketuneError(f"cannot make the run folder {folder}: {error.strerror or error}")


def _is_ours(name: str) -> bool:
    """Whether a run makes a file of this name, were it only for a moment."""
    return name.removesuffix(".tmp") in RUN_FILES or name.removesuffix(".partial")[1:] in RUN_FILES


@contextmanager
def _locked(path: Path) -> Iterator[None]:
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
