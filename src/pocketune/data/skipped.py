"""Files that cannot be used and why, and how they are named to the user."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class UnreadableImage(PocketuneError):  # noqa: N818 - says what it is
    """A file that cannot be used as an image.

    Attributes:
        name: the file.
        reason: why, in a few words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{shown(name)} cannot be used as an image: {reason}")
        self.name = name
        self.reason = reason


@contextmanager
def reading_image(name: str) -> Iterator[None]:
    """Turn whatever reading and decoding the file ``name`` raises into ``UnreadableImage``."""
    try:
        yield
    except (PocketuneError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes Pillow's decoders raise nearly anything
        raise UnreadableImage(name, _reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, Image.DecompressionBombError):
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        return f"more than {limit} million pixels; make it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if str(error).startswith("decoder error"):  # a number of libtiff's
        return "the file is damaged"
    return str(error) or type(error).__name__
