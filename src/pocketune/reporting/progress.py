"""Bars while photos are predicted and while a kit is built."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar with the time left on standard error, if that is a terminal.

    Yields:
        A function to call with the number of photos that were just done.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def staged() -> Iterator[Callable[[str, float], None]]:
    """A bar with what is done and the time left on standard error, if that is a terminal.

    Yields:
        A function to call with what is done next, and the share of the time that is over.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeLeft())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
