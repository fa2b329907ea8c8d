"""Bars while photos are predicted, while a kit is built, and while something else is computed."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left on standard error, if that is a terminal.

    Yields:
        A function to call with the number of photos that were just done.
    """
    with _bar(counts=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def staged(*, lines: bool = False) -> Iterator[Callable[[str, float], None]]:
    """A bar with what is done and the time left on standard error, if that is a terminal.

    Args:
        lines: Whether to print what is done as lines elsewhere.

    Yields:
        A function to call with what is done next, and the share of the time that is over.
    """
    with _bar(counts=False) as bar:
        task = bar.add_task("", total=1.0, whole=None)

        def show(what: str, share: float) -> None:
            if lines and bar.disable:
                with suppress(OSError):
                    print(what, file=sys.stderr, flush=True)
            elapsed = bar.tasks[0].elapsed or 0.0
            bar.update(task, description=what, completed=share, whole=expected(elapsed, share))

        yield show


def expected(elapsed: float, share: float) -> float | None:
    """Seconds that all takes if a share of it took so many; None before a share is over."""
    return elapsed / share if share > 0 else None


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A bar that moves without an end on standard error, if that is a terminal."""
    with _bar(counts=False) as bar:
        bar.add_task(what, total=None)
        yield


def _bar(*, counts: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """The time left by the share that is over: there are too few stages to see their speed."""

        def render(self, task: Task) -> Text:
            whole = task.fields.get("whole")
            left = "" if whole is None else f"{max(0.0, whole - (task.elapsed or 0.0)):.0f} s left"
            return Text(left, style="progress.remaining")

    columns = [TextColumn("{task.description}"), BarColumn()]
    columns += [MofNCompleteColumn(), TimeRemainingColumn()] if counts else [TimeLeft()]
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
