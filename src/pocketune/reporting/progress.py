"""Bars while photos are predicted, while a kit is built, and while something else is computed."""

from __future__ import annotations

from contextlib import contextmanager
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
def staged() -> Iterator[Callable[[str, float], None]]:
    """A bar with what is done and the time left on standard error, if that is a terminal.

    Yields:
        A function to call with what is done next, and the share of the time that is over.
    """
    with _bar(counts=False) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


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
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
    if counts:
        columns.insert(2, MofNCompleteColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
