"""What a run shows while it trains.

It is plain text and carriage returns: a drawing library would add 3 MB to the process whose memory
is counted.
"""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from pocketune.tasks import Score

_REFRESH = 0.1
_PLAIN = 10.0


@dataclass(frozen=True)
class StepReport:
    """A step that was just made.

    Attributes:
        step: Steps done, of ``steps``.
        epoch: The epoch in progress, from 1, of ``epochs``.
        training: Mean loss and metric of this epoch's steps so far.
        rate: Images a second, decoding and waiting included.
        seconds_left: Expected time until the last step.
        memory: Peak resident bytes of the process.
        budget: Bytes that it may take; None is no limit.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    training: Score
    rate: float
    seconds_left: float
    memory: int
    budget: int | None


@dataclass(frozen=True)
class EpochReport:
    """An epoch that was just validated.

    Attributes:
        epoch: The epoch, from 1, of ``epochs``.
        training: Mean loss and metric of its steps.
        validation: Those of the validation photos; None without any.
        best: Whether it is the best so far.
    """

    epoch: int
    epochs: int
    training: Score
    validation: Score | None
    best: bool


class Progress(Protocol):
    """Receives each step and each epoch."""

    def step(self, report: StepReport) -> None:
        """A step was made."""
        ...

    def epoch(self, report: EpochReport) -> None:
        """An epoch was validated."""
        ...

    def close(self) -> None:
        """The run is over, or was stopped."""
        ...


class Silent:
    """Says nothing."""

    def step(self, report: StepReport) -> None:
        """Nothing."""

    def epoch(self, report: EpochReport) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainLines:
    """A line every ten seconds and one an epoch, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = time.monotonic() + _PLAIN

    def step(self, report: StepReport) -> None:
        """Print the step if the last line is ten seconds old."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN
            _write(self._stream, format_step(report) + "\n")

    def epoch(self, report: EpochReport) -> None:
        """Print the epoch."""
        _write(self._stream, format_epoch(report) + "\n")

    def close(self) -> None:
        """Nothing is left open."""


class LiveLine:
    """One line that each step rewrites; epochs stay above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = 0.0
        self._shown = 0

    def step(self, report: StepReport) -> None:
        """Rewrite the line, at most ten times a second."""
        if time.monotonic() >= self._next or report.step == report.steps:
            self._next = time.monotonic() + _REFRESH
            # A line wider than the terminal would wrap, and a carriage return not undo it.
            text = format_step(report)[: shutil.get_terminal_size().columns - 1]
            self._write(text)

    def epoch(self, report: EpochReport) -> None:
        """Print the epoch on a line that stays."""
        self._write(format_epoch(report))
        self.close()

    def close(self) -> None:
        """End the line."""
        if self._shown:
            _write(self._stream, "\n")
            self._shown = 0

    def _write(self, text: str) -> None:
        _write(self._stream, "\r" + text.ljust(self._shown))
        self._shown = len(text)


def _write(stream: TextIO, text: str) -> None:
    """Write; the run continues in silence if nobody reads it any more."""
    with suppress(OSError):
        stream.write(text)
        stream.flush()


def console(stream: TextIO | None = None) -> Progress:
    """A live line on a terminal, plain lines elsewhere; standard output by default."""
    stream = stream or sys.stdout
    return LiveLine(stream) if stream.isatty() else PlainLines(stream)


def format_step(report: StepReport) -> str:
    """One line for a step."""
    memory = f"{report.memory / 1e6:.0f}"
    if report.budget is not None:
        memory += f"/{report.budget / 1e6:.0f}"
    return (
        f"epoch {report.epoch}/{report.epochs}  step {report.step}/{report.steps}  "
        f"loss {report.training.loss:.3f}  {report.training}  "
        f"{report.rate:.0f} images/s  {memory} MB  {format_time(report.seconds_left)} left"
    )


def format_epoch(report: EpochReport) -> str:
    """One line for an epoch."""
    text = f"epoch {report.epoch}/{report.epochs}  loss {report.training.loss:.3f}"
    if report.validation is not None:
        text += f"  validation loss {report.validation.loss:.3f}  {report.validation}"
    return text + ("  (best)" if report.best else "")


def format_time(seconds: float) -> str:
    """Minutes and seconds, and hours if there are any.

    >>> format_time(75), format_time(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
