"""The log of a run: `metrics.jsonl`, one JSON object per line, and the progress display."""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.process import process_memory
from pocketune.device.train.progress import EpochReport, RefitReport, StartReport, StepReport
from pocketune.files import reading, regular, write_all, writing

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.device.engine.base import Gradients
    from pocketune.device.head import Head
    from pocketune.device.train.checkpoint import Counters
    from pocketune.device.train.events import EventFile
    from pocketune.device.train.folder import Run
    from pocketune.device.train.progress import PhotosReport, Progress
    from pocketune.tasks import Score

_MOST_STEPS = 4096
"""Steps whose seconds are kept of a log, for their median."""


class Throughput:
    """Exponential moving average of the seconds per step, with a half-life of seven steps.

    Args:
        batch: Images in a step.
    """

    def __init__(self, batch: int) -> None:
        self.seconds = 0.0
        self._batch = batch
        self._last = time.monotonic()

    @property
    def rate(self) -> float:
        """Images per second; 0 before the first step."""
        return self._batch / self.seconds if self.seconds else 0.0

    def restart(self) -> None:
        """Ignore the time since the last step, such as that of a validation."""
        self._last = time.monotonic()

    def tick(self) -> float:
        """Count a step; returns the seconds that it took."""
        now = time.monotonic()
        taken, self._last = now - self._last, now
        self.seconds = 0.9 * self.seconds + 0.1 * taken if self.seconds else taken
        return taken


class MetricsFile:
    """Appends lines; each reaches the operating system before `write` returns.

    Args:
        path: The file; created if it does not exist.
        keep: Bytes to keep of an existing file. When a run resumes from a checkpoint, the lines
            after the checkpoint are cut off, so that no step is written twice.

    Raises:
        PocketuneError: The file cannot be written.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        with writing(path):
            self._file = path.open("ab", buffering=0)
            if self._file.tell() > keep:
                self._file.truncate(keep)
                self._file.seek(keep)

    def write(self, kind: str, **values: Any) -> None:
        """Append a line; numbers that JSON does not have (nan, inf) become null.

        Raises:
            PocketuneError: The disk is full, or the file cannot be written.
        """
        known = {key: None if _is_odd(value) else value for key, value in values.items()}
        line = json.dumps({"kind": kind, **known}).encode() + b"\n"
        with writing(self.path):
            write_all(self._file, line)

    def sync(self) -> int:
        """Flush all lines to the disk; returns the file's length in bytes."""
        with writing(self.path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class LogSummary:
    """What a run log says about the whole run.

    Attributes:
        seconds: Wall-clock seconds up to the last line, without pauses between processes.
        training_seconds: Sum of the seconds of the steps.
        step_seconds: Seconds of at least 2,048 steps, evenly spread, or of all.
        peak_memory: Peak resident bytes, over all processes of the run.
    """

    seconds: float = 0.0
    training_seconds: float = 0.0
    step_seconds: list[float] = field(default_factory=list)
    peak_memory: int = 0


def read_log(path: Path) -> LogSummary:
    """Summarize a run log. Lines that are not of a log, as an edited file may have, are left out.

    The memory that this takes does not depend on the number of steps.

    Raises:
        PocketuneError: The file cannot be read.
    """
    seconds, training, peak, spread = 0.0, 0.0, 0, _Spread()
    with reading(path), regular(path).open("rb") as file:
        for line in file:
            with suppress(ValueError, KeyError, TypeError):
                values = json.loads(line)
                seconds = max(seconds, float(values["elapsed"]))
                peak = max(peak, int(values.get("memory", 0)))
                if values["kind"] == "step":
                    step = float(values["seconds"])
                    training += step
                    spread.add(step)
    return LogSummary(seconds, training, spread.values, peak)


class _Spread:
    """Keeps numbers evenly spread over all that are added: every first, second, fourth ..."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self._every, self._added = 1, 0

    def add(self, value: float) -> None:
        if self._added % self._every == 0:
            self.values.append(value)
        self._added += 1
        if len(self.values) == _MOST_STEPS:
            self.values = self.values[::2]
            self._every *= 2


class RunLog:
    """Writes each step and epoch of a run to its metrics file, and shows it.

    Args:
        run: The run.
        metrics: The metrics file.
        progress: The progress display.
        before: Seconds that earlier processes of the run took.
        events: A file for TensorBoard; None for none.
    """

    def __init__(
        self,
        run: Run,
        metrics: MetricsFile,
        progress: Progress,
        before: float = 0.0,
        events: EventFile | None = None,
    ) -> None:
        self.throughput = Throughput(run.batch)
        self._run = run
        self._task = run.photos.task
        self._metrics = metrics
        self._events = events
        self._progress = progress
        self._began = run.began - before

    def sync(self) -> int:
        """Flush the metrics file to the disk; returns its length in bytes."""
        return self._metrics.sync()

    def start(self, counters: Counters, factor: float = 1.0) -> None:
        """Write and show what the run starts from; `factor` is that of `temper`."""
        self._write(
            "start",
            step=0,
            head=counters.head,
            head_images=counters.head_images,
            further=counters.further,
            head_factor=factor,
            **self._known(counters.estimate).to_dict("estimated_"),
            **self._known(counters.start).to_dict("validation_"),
            memory=process_memory().peak,
        )
        self._progress.start(
            StartReport(
                counters.head,
                counters.head_images,
                counters.estimate,
                counters.start,
                photos=len(self._run.photos.splits.train),
                imbalance=self._run.photos.imbalance,
                balance=self._run.settings.balance if self._run.steps else None,
                factor=factor,
            )
        )

    def step(self, counters: Counters, result: Gradients, *, lr: float, norm: float) -> None:
        """Write the step that was just counted."""
        seconds = self.throughput.tick()
        memory = process_memory().peak
        self._write(
            "step",
            step=counters.step,
            epoch=counters.epoch + 1,
            **self._task.step_score(result.loss, result.metrics, self._run.batch).to_dict(),
            lr=lr,
            gradient_norm=norm,
            images_per_second=round(self.throughput.rate, 1),
            seconds=round(seconds, 6),
            memory=memory,
        )
        self._progress.step(
            StepReport(
                step=counters.step,
                steps=self._run.steps,
                epoch=counters.epoch + 1,
                epochs=self._run.epochs,
                training=self._training(counters),
                rate=self.throughput.rate,
                seconds_left=(self._run.steps - counters.step) * self.throughput.seconds,
                memory=memory,
                budget=self._run.settings.budget_bytes,
            )
        )

    def epoch(self, counters: Counters, validation: Score | None, *, best: bool) -> None:
        """Write the epoch whose last batch was just counted."""
        report = EpochReport(
            epoch=counters.epoch + 1,
            epochs=self._run.epochs,
            training=self._training(counters),
            validation=validation,
            best=best,
            stale=counters.stale,
            patience=self._run.settings.patience or 0,
        )
        self._write(
            "epoch",
            step=counters.step,
            epoch=report.epoch,
            **report.training.to_dict(),
            **self._known(validation).to_dict("validation_"),
            best=best,
        )
        self._progress.epoch(report)

    def photos(self, report: PhotosReport) -> None:
        """Show a pass over photos that makes no steps."""
        self._progress.photos(report)

    def refit(
        self, counters: Counters, head: Head, validation: Score | None, *, best: bool
    ) -> None:
        """Write the classifier that was computed after the last step."""
        self._write(
            "refit",
            step=counters.step,
            head=head.name,
            **self._known(head.score).to_dict("estimated_"),
            **self._known(validation).to_dict("validation_"),
            best=best,
        )
        self._progress.refit(RefitReport(head.name, validation, best))

    def end(self, counters: Counters) -> None:
        """Write the end of the run."""
        self._write(
            "end",
            step=counters.step,
            reason=counters.finished,
            best_step=counters.best_step,
            **self._known(counters.best).to_dict("best_"),
            memory=process_memory().peak,
        )

    def _write(self, kind: str, **values: Any) -> None:
        """Write a line with the seconds since the run began, without pauses between processes."""
        elapsed = round(time.monotonic() - self._began, 3)
        self._metrics.write(kind, **values, elapsed=elapsed)
        if self._events is not None:
            self._events.write(kind, **values)

    def _training(self, counters: Counters) -> Score:
        """The score of the epoch's steps so far."""
        images = counters.batch * self._run.batch
        return self._task.step_score(counters.loss_sum / counters.batch, counters.metrics, images)

    def _known(self, score: Score | None) -> Score:
        """The score itself; a score of nan if it is None."""
        return score or self._task.score(math.nan, math.nan)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
