"""What a run is, and its folder: a copy of its kit, what the run adds to it, and a lock on both.

The system takes the lock back when the process dies.
"""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pocketune.errors import PocketuneError
from pocketune.files import partial, reading, writing
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, METRICS, RUN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pocketune.arrays import StrPath
    from pocketune.device.train.photos import Photos
    from pocketune.device.train.settings import TrainSettings

RUNS = Path("runs")
_FAR = 1 << 30
"""Windows locks bytes and keeps others from reading them: lock one far behind the end."""


@dataclass(frozen=True)
class RunIdentity:
    """What a checkpoint belongs to; resuming with anything else is an error.

    Attributes:
        kit: Hash of the kit's manifest, which in turn holds the hashes of its files.
        photos: Hash of the training photos' names and labels, in order.
        classes: Class names in the order of the logits.
    """

    kit: str
    photos: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """What stays the same from the first step of a run to its last.

    Attributes:
        folder: The run folder; nothing is written outside of it.
        settings: How the run trains.
        photos: What it trains on.
        identity: What its checkpoints belong to.
    """

    folder: Path
    settings: TrainSettings
    photos: Photos
    identity: RunIdentity

    @property
    def batch(self) -> int:
        """Images of a step."""
        return self.photos.training.batch

    @property
    def steps_per_epoch(self) -> int:
        """Steps of a whole epoch."""
        return len(self.photos.training)

    @property
    def steps(self) -> int:
        """Steps of the whole run, unless validation ends it earlier."""
        return self.settings.total_steps(self.steps_per_epoch)

    @property
    def epochs(self) -> int:
        """Epochs of the whole run, the last of which may be cut short."""
        return math.ceil(self.steps / self.steps_per_epoch)


def next_run(photos: StrPath) -> Path:
    """``runs/`` and the photos' name, with a number if there is such a run already."""
    path = Path(photos).resolve()  # ".." is a folder with a name too
    name = (path.name if path.is_dir() else path.stem) or "photos"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(RUNS / name for name in names if not (RUNS / name).exists())


@contextmanager
def new_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a new run, or take over one whose run never got to its first checkpoint.

    The metrics file comes first and marks the folder as a run's. It is locked until the context
    ends.

    Raises:
        PocketuneError: The folder holds a run, or anything else, or cannot be made.
    """
    check_new_run_folder(folder)
    with writing(f"the run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
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
    """Check that a new run may have the folder; nothing is changed.

    Raises:
        PocketuneError: The folder holds a run, or anything else, or cannot be read.
    """
    if folder.is_file():
        raise PocketuneError(f"{folder} is a file: choose a folder for the run")
    names: set[str] = set()
    with reading(f"the run folder {folder}"), suppress(FileNotFoundError):
        names = {entry.name for entry in folder.iterdir()}
    if LAST in names:
        raise PocketuneError(
            f"{folder} already contains a run: resume it, or choose another folder for a new one"
        )
    left_over = METRICS in names and all(_is_ours(name) for name in names)
    if names and not left_over:
        raise PocketuneError(f"{folder} is not empty: choose a new folder for the run")


def _is_ours(name: str) -> bool:
    """Whether a run makes a file of this name, if only for a moment."""
    return any(name in (file, partial(Path(file)).name) for file in RUN_FILES)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the only lock on a file, which is created if it does not exist.

    On a file system without locks, none is held.

    Raises:
        PocketuneError: Another process holds it, or the file cannot be written.
    """
    with writing(path):
        file = path.open("ab")
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
