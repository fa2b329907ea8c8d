"""Train and evaluate one cell of a comparison: the main function of its process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketune.comparison.cell import Cell
from pocketune.device.train.display import console, is_seen
from pocketune.device.train.progress import Silent
from pocketune.device.train.record import RunRecord
from pocketune.device.train.run import resume, train
from pocketune.device.train.settings import TrainSettings
from pocketune.device.use.evaluate import evaluate
from pocketune.device.use.model import Model
from pocketune.kit.names import LAST, MANIFEST, RESULT
from pocketune.processes.job import do_job


@dataclass(frozen=True)
class RunJob:
    """A run to make, or to continue.

    Attributes:
        cell: The unfinished cell, as plain values.
        kit: The kit to train.
        photos: The set of photos.
        run: The run folder.
        settings: Settings of `pocketune.train`.
        out: The file for the finished cell.
    """

    cell: dict[str, Any]
    kit: str
    photos: str
    run: str
    settings: dict[str, Any]
    out: str


def run_cell(job: RunJob) -> None:
    """Train, evaluate, and write the finished cell.

    Raises:
        PocketuneError: Training or evaluation failed.
    """
    folder, cell = Path(job.run), Cell.from_dict(job.cell, "the job")
    progress = console() if is_seen() else Silent()
    if (folder / RESULT).exists() and not (folder / MANIFEST).exists():
        shutil.rmtree(folder)  # its cell is lost, and what it could be evaluated with is removed
    if (folder / RESULT).exists():
        pass  # only the evaluation is missing
    elif (folder / LAST).exists():
        resume(folder, job.photos, progress=progress)
    else:
        settings = TrainSettings(**job.settings)
        train(job.kit, job.photos, folder, settings, progress=progress)
    model, test = Model.open(folder), cell.part == "test"
    found = evaluate(model, job.photos if test else None, test=test)
    record = RunRecord.read(folder)
    cell.finished(found.value, found.images, model.task, record).write(Path(job.out))


if __name__ == "__main__":
    do_job(RunJob, run_cell)
