"""Everything that a run leaves behind: checkpoints, best values, metrics, and what is shown."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.process import process_memory
from pocketune.device.train.checkpoint import (
    Checkpoint,
    Counters,
    RunIdentity,
    TrainedNetwork,
)
from pocketune.device.train.progress import EpochReport, Progress, StepReport
from pocketune.errors import PocketuneError
from pocketune.kit.names import BEST, LAST

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.device.engine.base import Engine
    from pocketune.device.train.optimizer import Optimizer
    from pocketune.device.train.settings import TrainSettings
    from pocketune.device.train.validation import Validation


class Pace:
    """A running mean of the seconds a step takes, which forgets half within seven steps.

    Args:
        batch: Images of a step.
    """

    def __init__(self, batch: int) -> None:
        self.seconds = 0.0
        self._batch = batch
        self._last = time.monotonic()

    @property
    def rate(self) -> float:
        """Images a second; 0 before the first step."""
        return self._batch / self.seconds if self.seconds else 0.0

    def restart(self) -> None:
        """Leave out the time since the last step, which was spent on other things."""
        self._last = time.monotonic()

    def tick(self) -> None:
        """A step was made."""
        now = time.monotonic()
        taken, self._last = now - self._last, now
        self.seconds = 0.9 * self.seconds + 0.1 * taken if self.seconds else taken


class MetricsFile:
    """Appends lines; each reaches the operating system before :meth:`write` returns.

    Args:
        path: The file; made where it does not exist.
        keep: Bytes to keep of what is there. Lines after a checkpoint are cut off when the run
            goes on from that checkpoint, so that no step is told twice.

    Raises:
        PocketuneError: The file cannot be written.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        try:
            self._file = path.open("ab", buffering=0)
            if self._file.tell() > keep:
                self._file.truncate(keep)
                self._file.seek(keep)
        except OSError as error:
            raise self._failure(error) from error

    def write(self, kind: str, **values: Any) -> None:
        """Append a line; numbers that JSON does not know (nan, inf) become null.

        Raises:
            PocketuneError: The disk is full, or the file cannot be written.
        """
        known = {key: None if _is_odd(value) else value for key, value in values.items()}
        line = json.dumps({"kind": kind, **known}).encode() + b"\n"
        try:
            # A raw file may take less than it was given, where a disk fills up.
            while line:
                line = line[self._file.write(line) or 0 :]
        except OSError as error:
            raise self._failure(error) from error

    def sync(self) -> int:
        """Put all lines on the disk; returns the file's length in bytes."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from error
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _failure(self, error: OSError) -> PocketuneError:
        return PocketuneError(f"could not write {self.path}: {error.strerror or error}")


@dataclass
class Recorder:
    """Writes to the run folder and tells the progress, always in this order.

    Attributes:
        folder: The run folder; nothing is written outside of it.
        settings: How the run trains.
        identity: What the checkpoints belong to.
        metrics: Where each step and epoch is told.
        progress: Shows the run.
        batch: Images of a step.
        steps_per_epoch: Batches of an epoch.
    """

    folder: Path
    settings: TrainSettings
    identity: RunIdentity
    metrics: MetricsFile
    progress: Progress
    batch: int
    steps_per_epoch: int

    def __post_init__(self) -> None:
        self.steps = self.settings.total_steps(self.steps_per_epoch)
        self.epochs = math.ceil(self.steps / self.steps_per_epoch)
        self.pace = Pace(self.batch)
        self._saved_at = time.monotonic()

    def checkpoint_is_due(self, counters: Counters) -> bool:
        """Whether so many steps or seconds have passed as the settings say."""
        every, seconds = self.settings.checkpoint_every, self.settings.checkpoint_seconds
        if every and counters.step % every == 0:
            return True
        return bool(seconds) and time.monotonic() - self._saved_at >= (seconds or 0)

    def save(self, engine: Engine, optimizer: Optimizer, counters: Counters) -> None:
        """Write ``last.safetensors``, after the metrics that lead up to it are on the disk."""
        counters.metrics_bytes = self.metrics.sync()
        Checkpoint(
            parameters=engine.parameters,
            statistics=engine.statistics,
            optimizer=optimizer.state(),
            counters=counters,
            settings=self.settings,
            identity=self.identity,
        ).save(self.folder / LAST)
        self._saved_at = time.monotonic()

    def keep_best(self, engine: Engine, counters: Counters) -> None:
        """Write ``best.safetensors``."""
        TrainedNetwork(
            state={**engine.parameters, **engine.statistics},
            classes=self.identity.classes,
            kit=self.identity.kit,
            step=counters.best_step,
            accuracy=counters.best_accuracy,
            loss=counters.best_loss,
        ).save(self.folder / BEST)

    def step(
        self, counters: Counters, *, loss: float, correct: float, lr: float, norm: float
    ) -> None:
        """Tell of a step that was just counted."""
        self.pace.tick()
        memory = process_memory().peak
        self.metrics.write(
            "step",
            step=counters.step,
            epoch=counters.epoch + 1,
            loss=loss,
            accuracy=correct / self.batch,
            lr=lr,
            gradient_norm=norm,
            images_per_second=round(self.pace.rate, 1),
            memory=memory,
        )
        self.progress.step(
            StepReport(
                step=counters.step,
                steps=self.steps,
                epoch=counters.epoch + 1,
                epochs=self.epochs,
                loss=counters.loss_sum / counters.batch,
                accuracy=self._training_accuracy(counters),
                rate=self.pace.rate,
                seconds_left=(self.steps - counters.step) * self.pace.seconds,
                memory=memory,
                budget=self.settings.budget,
            )
        )

    def epoch(self, counters: Counters, result: Validation | None, *, best: bool) -> None:
        """Tell of an epoch, all of whose batches are counted."""
        loss = counters.loss_sum / counters.batch
        report = EpochReport(
            epoch=counters.epoch + 1,
            epochs=self.epochs,
            loss=loss,
            validation_loss=result.loss if result else None,
            validation_accuracy=result.accuracy if result else None,
            best=best,
        )
        self.metrics.write(
            "epoch",
            step=counters.step,
            epoch=report.epoch,
            loss=loss,
            accuracy=self._training_accuracy(counters),
            validation_loss=report.validation_loss,
            validation_accuracy=report.validation_accuracy,
            best=best,
        )
        self.progress.epoch(report)

    def end(self, counters: Counters) -> None:
        """Tell that the run is over."""
        self.metrics.write(
            "end",
            step=counters.step,
            reason=counters.finished,
            best_step=counters.best_step,
            best_accuracy=counters.best_accuracy,
            best_loss=counters.best_loss,
            memory=process_memory().peak,
        )

    def _training_accuracy(self, counters: Counters) -> float:
        return counters.correct / (counters.batch * self.batch)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
