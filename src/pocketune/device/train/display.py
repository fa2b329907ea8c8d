"""The progress display of a run, on a terminal or in a log.

It writes plain text and carriage returns, because a terminal library would add 3 MB to the process
whose memory is measured.
"""

from __future__ import annotations

import shutil
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from pocketune.device.train.defaults import UNEVEN
from pocketune.device.train.progress import Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pocketune.device.train.progress import (
        EpochReport,
        PhotosReport,
        RefitReport,
        StartReport,
        StepReport,
    )

_REFRESH = 0.1
"""Seconds between two texts of a live line."""

_PLAIN = 10.0
"""Seconds between two plain lines of steps or photos."""


class _Display(Progress, ABC):
    """Shows each report as a line; a subclass decides which lines stay.

    Args:
        stream: Where lines are written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        """Show the line."""
        self._keep(text)

    def photos(self, report: PhotosReport) -> None:
        """Show the count, now and then."""
        self._pass(lambda: format_photos(report))

    def start(self, report: StartReport) -> None:
        """Show the start."""
        self._keep(*_start_lines(report))

    def step(self, report: StepReport) -> None:
        """Show the step, now and then."""
        self._pass(lambda: format_step(report))

    def epoch(self, report: EpochReport) -> None:
        """Show the epoch."""
        self._keep(format_epoch(report))

    def refit(self, report: RefitReport) -> None:
        """Show the classifier."""
        self._keep(format_refit(report))

    @abstractmethod
    def _keep(self, *lines: str) -> None:
        """Show lines that stay."""

    @abstractmethod
    def _pass(self, text: Callable[[], str]) -> None:
        """Show a line that is soon out of date, unless another was shown a moment ago."""


class PlainLines(_Display):
    """A line every ten seconds and one per epoch, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._next = time.monotonic() + _PLAIN

    def _keep(self, *lines: str) -> None:
        for line in lines:
            _write(self._stream, line + "\n")

    def _pass(self, text: Callable[[], str]) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN
            self._keep(text())


class LiveLine(_Display):
    """One line that is rewritten at most ten times a second; the lines of epochs stay above it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._next = 0.0
        self._shown = 0
        self._latest: Callable[[], str] | None = None

    def close(self) -> None:
        """End the line, at its latest text."""
        self._show()
        if self._shown:
            _write(self._stream, "\n")
            self._shown = 0

    def _keep(self, *lines: str) -> None:
        self._latest = None
        for line in lines:
            self._write(line)
            self.close()

    def _pass(self, text: Callable[[], str]) -> None:
        self._latest = text
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _REFRESH
            self._show()

    def _show(self) -> None:
        """Write the latest text, if it is not written yet."""
        if self._latest is not None:
            # A line wider than the terminal would wrap, which a carriage return does not undo.
            self._write(self._latest()[: shutil.get_terminal_size().columns - 1])
            self._latest = None

    def _write(self, text: str) -> None:
        _write(self._stream, "\r" + text.ljust(self._shown))
        self._shown = len(text)


def _write(stream: TextIO, text: str) -> None:
    """Write text; the run continues silently if the stream is closed.

    Characters that the stream cannot encode are escaped.
    """
    with suppress(OSError, ValueError):  # ValueError: closed by this program
        try:
            stream.write(text)
        except UnicodeEncodeError as error:
            stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        stream.flush()


def console(stream: TextIO | None = None) -> Progress:
    """A live line on a terminal, plain lines elsewhere; standard output by default.

    A service or a program without a window may have no standard output, or a closed one. Nothing
    is shown there.
    """
    stream = stream or sys.stdout
    if stream is None or getattr(stream, "closed", False):
        return Silent()
    return LiveLine(stream) if stream.isatty() else PlainLines(stream)


def is_seen() -> bool:
    """Whether somebody sees a live line: standard output is a terminal."""
    return isinstance(console(), LiveLine)


def format_photos(report: PhotosReport) -> str:
    """One line for photos whose embeddings are computed."""
    left = format_time(report.seconds_left)
    return f"{report.purpose}: {report.done}/{report.photos}  {left} left"


def _start_lines(report: StartReport) -> list[str]:
    uneven = [format_imbalance(report)] if report.imbalance > UNEVEN else []
    factor = [format_factor(report.factor)] if report.factor < 1 else []
    return [*uneven, format_start(report), *factor]


def format_start(report: StartReport) -> str:
    """One line for the start of a run."""
    source = {
        "kept": "classifier of the kit or run, unchanged",
        "random": "classifier drawn at random",
    }
    text = "start  " + source.get(report.head, f"classifier from the photos ({report.head})")
    if 0 < report.images < report.photos:
        text += f", {report.images} of {report.photos} photos"
    if report.estimate is not None:
        text += f"  {estimate_kind(report.head)} {report.estimate}"
    if report.validation is not None:
        text += f"  validation loss {report.validation.loss:.3f}  {report.validation}"
    return text


def estimate_kind(head: str) -> str:
    """How the estimate of a start was measured, by where its classifier comes from."""
    return "on the training photos" if head == "kept" else "cross-validated"


def format_imbalance(report: StartReport) -> str:
    """One line for classes of very different sizes."""
    text = f"uneven  the largest class has {report.imbalance:.0f} times the photos of the smallest"
    if report.balance is None:
        return text
    if report.balance == 0:
        return f"{text}; each photo counts alike (balance 0)"
    return f"{text}; photos of rare classes count more (balance {report.balance:g})"


def format_factor(factor: float) -> str:
    """One line for a classifier that is less steep in the first step."""
    return (
        f"steps  begin with 1/{1 / factor:.0f} of its outputs, because the features of a batch are "
        "far from those of the network"
    )


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
    if report.validation is None:
        return text
    text += f"  validation loss {report.validation.loss:.3f}  {report.validation}"
    if report.best:
        return text + "  (best)"
    if report.patience and report.stale:
        text += f"  (none better for {report.stale} of {report.patience} epochs)"
    return text


def format_refit(report: RefitReport) -> str:
    """One line for a classifier that was computed again."""
    text = f"classifier computed again ({report.head})"
    if report.validation is not None:
        text += f"  validation loss {report.validation.loss:.3f}  {report.validation}"
    return text + "  (best)" * report.best


def format_time(seconds: float) -> str:
    """Minutes and seconds, and hours if there are any.

    >>> format_time(75), format_time(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
