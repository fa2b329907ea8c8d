"""What notebooks show of a result."""

from __future__ import annotations

from typing import Protocol


class Printer(Protocol):
    """Receives what is shown."""

    def text(self, text: str) -> None:
        """Show a text."""
        ...


class Readable:
    """In a notebook, and in IPython, the last line of a cell shows what `print` would show."""

    def _repr_pretty_(self, printer: Printer, _cycle: bool) -> None:
        printer.text(str(self))
