"""What is done while a kit is made, and how far it is."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is done next, and the share of the time that is over, from 0 to 1."""


def silent(_: str, __: float) -> None:
    """Show nothing."""


def part(progress: Progress, start: float) -> Progress:
    """The progress of the rest of a job, whose beginning takes a share `start` of the time."""
    return lambda what, share: progress(what, start + (1 - start) * share)
