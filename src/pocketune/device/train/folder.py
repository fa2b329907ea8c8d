"""A run and its folder, which holds a copy of the kit and the files of the run.

While a run trains, its folder is locked. The system releases the lock if the process dies.
"""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.device.train.adjustment import Adjustment
from pocketune.device.train.interrupt import NothingKept
from pocketune.errors import PocketuneError, Remedy
from pocketune.files import is_partial, reading, refuse_undecodable, stem_of, writing
from pocketune.kit.kit import Kit
from pocketune.kit.names import BEST, EVENTS, LAST, METRICS, RESULT, RUN_FILES
from pocketune.kit.storage import run_file
from pocketune.locks import locked
from pocketune.processes.signals import signal_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from pocketune.arrays import StrPath
    from pocketune.device.memory.estimate import MemoryEstimate
    from pocketune.device.train.photos import Photos
    from pocketune.device.train.settings import TrainSettings
    from pocketune.kit.manifest import Manifest

RUNS = Path("runs")


@dataclass(frozen=True)
class RunIdentity:
    """The kit, photos and classes that a checkpoint belongs to; others cannot resume it.

    Attributes:
        kit: Hash of the kit's manifest, which holds the hashes of the kit's files.
        photos: Hash of the training photos' names and labels, in order.
        classes: Class names in the order of the logits.
    """

    kit: str
    photos: str
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """The parts of a run that do not change while it trains.

    Attributes:
        kit: The copy of the kit in the run folder.
        settings: The settings of the run.
        photos: The photos for training and validation.
        identity: The kit, photos and classes that its checkpoints belong to.
        memory: The predicted peak of the process, by purpose.
        began: `time.monotonic()` when this process began the run, or resumed it.
        deadline: `time.monotonic()` after which no step begins.
        refit_seconds: Time for computing the classifier again after the last step.
        shortened: Whether the limit of time left room for fewer steps than the settings asked for.
            A run that is resumed has no limit, and makes the steps that there was room for.
        earlier: Checksums of the names of photos that the run which this one began with, and those
            before it, were trained on; None for a kit.
    """

    kit: Kit
    settings: TrainSettings
    photos: Photos
    identity: RunIdentity
    memory: MemoryEstimate
    began: float
    deadline: float = math.inf
    refit_seconds: float = math.inf
    shortened: bool = False
    earlier: NDArray[np.uint32] | None = None

    @property
    def folder(self) -> Path:
        """The run folder; nothing is written outside of it."""
        return self.kit.path

    @property
    def manifest(self) -> Manifest:
        """The manifest of the kit."""
        return self.kit.manifest

    @property
    def batch(self) -> int:
        """Images in a step."""
        return self.photos.training.batch

    @property
    def adjustment(self) -> Adjustment | None:
        """What is added to the logits while the run trains, for classes of uneven size."""
        balance = self.settings.balance if self.steps else None
        if not balance:
            return None
        return Adjustment.of(self.photos.splits.train, self.photos.task, balance)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in a complete epoch."""
        return len(self.photos.training)

    @property
    def steps(self) -> int:
        """Steps of the whole run, unless it stops early."""
        return self.settings.total_steps(self.steps_per_epoch)

    @property
    def epochs(self) -> int:
        """Epochs of the whole run; the last one may be incomplete."""
        return math.ceil(self.steps / self.steps_per_epoch)


def first_run(photos: StrPath) -> Path:
    """`runs/` and the photos' name."""
    return RUNS / stem_of(photos)


def next_run(photos: StrPath) -> Path:
    """The `first_run` of the photos, with a number if that run exists already."""
    first = first_run(photos)
    runs = (first.with_name(f"{first.name}-{number}") for number in count(2))
    with reading(f"the folder {RUNS}"):
        return next(run for run in chain([first], runs) if not run.exists())


def plan_folder(run: Path) -> Path:
    """The folder of the plan of a run, beside the run."""
    return run.with_name(f"{run.name}.plan")


@contextmanager
def new_run_folder(folder: Path) -> Iterator[None]:
    """Create the folder of a new run, or reuse one whose run never wrote a checkpoint.

    The metrics file is written first and marks the folder as a run's. It is locked until the
    context ends. If the context fails before there is a checkpoint, nothing is left behind.

    Raises:
        NothingKept: The context was interrupted before there was a checkpoint.
        PocketuneError: The folder holds a run or other files, or cannot be created.
    """
    check_new_run_folder(folder)
    with writing(f"the run folder {folder}"):
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder / METRICS, _busy(folder)), _discarded_on_error(folder):
            yield
    finally:
        with suppress(OSError):
            if sys.platform == "win32" and not (folder / LAST).exists():
                (folder / METRICS).unlink()  # it cannot be removed there while it is open
            for each in made:  # a run's folder is not empty
                each.rmdir()


@contextmanager
def _discarded_on_error(folder: Path) -> Iterator[None]:
    """Leave nothing of a run that fails before its first checkpoint.

    Raises:
        NothingKept: The context was interrupted before there was a checkpoint.
    """
    try:
        yield
    except BaseException as error:
        if (folder / LAST).exists():
            raise
        _discard(folder)
        if isinstance(error, KeyboardInterrupt):
            raise NothingKept(str(folder), signal_of(error)) from None
        raise


def _discard(folder: Path) -> None:
    """Remove what a run wrote before its first checkpoint; what it has locked comes last."""
    with suppress(OSError):
        ours = [entry for entry in folder.iterdir() if _is_ours(entry.name)]
        for entry in sorted(ours, key=lambda entry: entry.name == METRICS):
            entry.unlink()


def complete(folder: Path, after: str = "") -> PocketuneError:
    """The error for a run that is to be resumed and has ended."""
    return PocketuneError(
        f"the run in {folder} is complete{after}: there is nothing to resume",
        remedy=Remedy("train further", "give it to train as the kit to go on", run=folder),
    )


@contextmanager
def open_run_folder(folder: Path) -> Iterator[Kit]:
    """Open the kit of a run, and keep other processes from training it until the context ends.

    Raises:
        PocketuneError: The folder holds no run with a checkpoint, or one that the studio has
            finished; another process is training the run, or its kit is damaged.
    """
    with reading(f"the run folder {folder}"):
        if not (folder / LAST).is_file() and run_file(folder, RESULT) is not None:
            raise complete(folder)
        if folder.is_file():
            raise PocketuneError(
                f"{folder} is a file, and a run is resumed in its folder: unpack it"
            )
        if not (folder / LAST).is_file():
            raise PocketuneError(f"there is no run to resume in {folder}: it has no {LAST}")
    with locked(folder / METRICS, _busy(folder)):
        _remove_partial(folder)
        yield Kit.open(folder)


def _remove_partial(folder: Path) -> None:
    """Remove what a killed process has half written: nobody else writes in a locked folder."""
    with suppress(OSError):
        for entry in list(folder.iterdir()):
            if any(is_partial(entry.name, file) for file in RUN_FILES):
                entry.unlink(missing_ok=True)


def check_new_run_folder(folder: Path) -> None:
    """Check that a new run may use the folder; nothing is changed.

    Raises:
        PocketuneError: The folder holds a run or other files, or cannot be read, or the runtime
            could not open its kit.
    """
    refuse_undecodable(folder)
    names: set[str] = set()
    with reading(f"the run folder {folder}"), suppress(FileNotFoundError):
        if folder.is_file():
            raise PocketuneError(f"{folder} is a file: choose a folder for the run")
        names = {entry.name for entry in folder.iterdir()}
    if RESULT in names:
        raise PocketuneError(
            f"{folder} already contains a finished run",
            remedy=Remedy(
                "finished run exists",
                "choose another folder, or give the run to train as the kit to go on",
                run=folder,
            ),
        )
    if LAST in names:
        raise PocketuneError(
            f"{folder} already contains a run that is not finished",
            remedy=Remedy(
                "run exists", "resume it, or choose another folder for a new one", run=folder
            ),
        )
    left_over = METRICS in names and BEST not in names and all(map(_is_ours, names))
    if names and not left_over:
        raise PocketuneError(f"{folder} is not empty: choose a new folder for the run")


def _is_ours(name: str) -> bool:
    """Whether a run writes a file of this name, even temporarily."""
    return name.startswith(EVENTS) or any(
        name == file or is_partial(name, file) for file in RUN_FILES
    )


def _busy(folder: Path) -> str:
    return f"the run in {folder} is being trained already"
