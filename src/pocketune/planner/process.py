"""The memory of a training process before it opens a kit, measured in such a process."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pocketune.errors import PocketuneError
from pocketune.processes.job import do_job, run_job

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings

COMMAND = 1_200_000
"""Bytes of `pocketune train` that the process below lacks: the command line, and the plan.
It took 1.0 MB."""


@dataclass(frozen=True)
class ProcessJob:
    """A process to measure.

    Attributes:
        photos: The photos.
        val_fraction: Fraction of them for validation.
        seed: Seed of their division.
        ignore: Values of masks that do not count.
        class_names: Names of the values of masks.
        out: The file for the number of bytes.
    """

    photos: str
    val_fraction: float | None
    seed: int
    ignore: str | None
    class_names: str | None
    out: str


def process_bytes(photos: Path, settings: TrainSettings) -> int:
    """Resident bytes of `pocketune train` once it has found the photos, before it opens a kit.

    It is measured in a new process, because this one may have imported PyTorch.

    Args:
        photos: The photos.
        settings: The settings of the run, which divide the photos.

    Raises:
        PocketuneError: The process fails.
    """
    with tempfile.TemporaryDirectory(prefix="pocketune-") as folder:
        out = Path(folder) / "bytes"
        job = ProcessJob(
            str(photos),
            settings.val_fraction,
            settings.seed,
            settings.ignore,
            settings.class_names,
            str(out),
        )
        try:
            run_job(__name__, job)
        except PocketuneError as error:
            message = f"the memory of a training process cannot be measured: {error}"
            raise PocketuneError(message) from error
        return int(out.read_text()) + COMMAND


def _measure(job: ProcessJob) -> None:
    import click  # noqa: F401 - as `pocketune train` has it

    from pocketune.data import MaskOptions, load_splits
    from pocketune.device.memory.baseline import training_baseline

    training_baseline()  # as a run does: libraries that decode HEIC photos are loaded after it
    masks = MaskOptions(ignore=job.ignore, class_names=job.class_names)
    splits = load_splits(job.photos, val_fraction=job.val_fraction, seed=job.seed, masks=masks)
    measured = training_baseline()
    # The names are in memory until here.
    Path(job.out).write_text(str(measured if len(splits.train) else 0))


if __name__ == "__main__":
    do_job(ProcessJob, _measure)
