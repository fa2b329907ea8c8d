"""Why a file cannot be used as an image, whatever goes wrong inside."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from PIL import Image

from pocketune.errors import PocketuneError
from pocketune.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterator


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
