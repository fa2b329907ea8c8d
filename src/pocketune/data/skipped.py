"""Files that are left out of a run, and how they are named to the user."""

from __future__ import annotations

from typing import NamedTuple


class Skipped(NamedTuple):
    """A file that is not used, and the reason in a few words."""

    name: str
    reason: str


def printable(name: str) -> str:
    """``name`` without the characters that cannot be written as UTF-8.

    The operating system hands out such characters for file names that are not UTF-8; printing one
    would raise.
    """
    return name.encode("utf-8", "replace").decode()


def shown(name: str, limit: int = 80) -> str:
    """``name`` for a message: printable, and shortened in the middle to ``limit`` characters."""
    name = printable(name)
    if len(name) <= limit:
        return name
    half = (limit - 3) // 2
    return f"{name[:half]}...{name[-half:]}"
