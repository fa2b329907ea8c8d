"""A short run in a process of its own, so that its memory is measured and held to the budget."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.settings import TrainSettings
from pocketune.errors import PocketuneError
from pocketune.planner.trial import Length, Probe
from pocketune.processes.job import do_job, run_job

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

PHOTOS = 240
"""Training photos of a probe, unless its steps take more; at most as many validate. The features of
all photos would take longer than the steps."""
RUN = ".run"
"""Name of a run's folder: always the same, so that what a killed process left is replaced."""


class TooSlow(PocketuneError):  # noqa: N818 - the name says what happened
    """A run took longer than it may, which says nothing about the candidate."""


@dataclass(frozen=True)
class ProbeJob:
    """A short run to make.

    Attributes:
        kit: The kit to train.
        photos: The photos.
        run: The run folder.
        settings: Settings of `pocketune.train`.
        most: Images at most, of those for training and of those for validation.
    """

    kit: str
    photos: str
    run: str
    settings: dict[str, Any]
    most: int | None


def run_probe(
    kit: Path,
    photos: StrPath,
    settings: TrainSettings,
    folder: Path,
    length: Length,
) -> Probe:
    """Train a kit for a few steps as `pocketune train` does, and read the record of the run.

    The run is a whole one: its learning rate decays to zero within its steps. Its folder is
    removed.

    Args:
        kit: The kit.
        photos: The photos.
        settings: The settings of the run; its budget holds.
        folder: A folder for the run.
        length: Steps, photos and seconds of the run.

    Raises:
        TooSlow: The run took too long.
        PocketuneError: The run failed, and why.
    """
    warmup = int(length.share * settings.warmup)
    short = replace(settings, steps=length.steps, epochs=None, patience=None, warmup=warmup)
    run, began = folder / RUN, time.monotonic()
    shutil.rmtree(run, ignore_errors=True)
    try:
        job = ProbeJob(str(kit), str(photos), str(run), asdict(short), length.most)
        try:
            run_job(__name__, job, seconds=length.seconds)
        except subprocess.TimeoutExpired:
            raise TooSlow(f"{length.steps} steps took longer than {length.seconds:.0f} s") from None
        record = RunRecord.read(run)
        return Probe(
            steps=record.steps,
            score=record.best,
            peak=record.peak_memory,
            step_seconds=record.step_seconds or 0.0,
            seconds=time.monotonic() - began,
            photos=record.photos.scored,
        )
    finally:
        shutil.rmtree(run, ignore_errors=True)


def _train(job: ProbeJob) -> None:
    """Make the run in this process."""
    import click  # noqa: F401 - as `pocketune train` has it

    from pocketune.device.train.run import train

    settings = TrainSettings(**job.settings)
    train(job.kit, job.photos, job.run, settings, most=job.most, progress=Silent())


if __name__ == "__main__":
    do_job(ProbeJob, _train)
