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

    def __init_subclass__(cls) -> None:
        # IPython prefers the `__repr__` that a dataclass gets to a method of its base class.
        cls._repr_pretty_ = cls._repr_pretty_  # type: ignore[method-assign]

    def _repr_pretty_(self, printer: Printer, _cycle: bool) -> None:
        printer.text(str(self))
