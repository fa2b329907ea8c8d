"""Decode an image file of any common format to 8-bit red, green and blue.

This module saves memory. A 12-megapixel JPEG takes 48 MB when it is decoded in full, but a JPEG can
also be decoded at a half, a quarter or an eighth of its size. The crop is therefore chosen from the
header, and the image is decoded only as large as the crop needs. What else is large is converted
and resized in strips (`strips.py`), and the rare image that takes much in any way waits for its
turn (`cost.py`). An image above a limit is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from PIL import (
    AvifImagePlugin,
    Image,
    PngImagePlugin,
    TiffImagePlugin,
    UnidentifiedImageError,
    WebPImagePlugin,
)

from pocketune.data.images.cost import MAX_WORKING_BYTES, check_size
from pocketune.data.images.metadata import without_metadata
from pocketune.data.images.netpbm import use_own_decoder
from pocketune.data.images.pillow_headers import header_of
from pocketune.data.images.segments import tag_bytes
from pocketune.errors import PocketuneError
from pocketune.files import shown

AvifImagePlugin.DEFAULT_MAX_THREADS = 2  # each takes memory; there may be one for each core

# A fixed list: without it, Pillow imports all of its plugins (megabytes) at the first file that is
# not an image, and some of them start other programs.
_PLUGINS = (WebPImagePlugin, TiffImagePlugin, AvifImagePlugin)  # importing registers them
FORMATS = "JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"

_SCAN, _MOST_SCANS = b"\xff\xda", 200  # cameras and browsers write about ten
_CHUNK = 1 << 16
_HEIF = b"heic", b"heix", b"hevc", b"mif1", b"msf1"
"""Brands of HEIF files, which follow `ftyp`."""


class UnreadableImage(PocketuneError):  # noqa: N818 - the name describes the file
    """A file that cannot be used as an image.

    Attributes:
        name: The file.
        reason: Why, in a few words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{shown(name)} cannot be used as an image: {reason}")
        self.name = name
        self.reason = reason


def open_image(file: IO[bytes]) -> Image.Image:
    """Read an image's header; no pixel is decoded yet.

    Args:
        file: A seekable binary file, which has to stay open until the image is decoded.

    Raises:
        OSError, ValueError and others: The file is not an image or is too large; see
            `reading_image`.
    """
    _refuse_endless(file)
    file = without_metadata(file)
    image: Image.Image
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        image = _open_heif(file)
    header = header_of(image)
    check_size(header)
    if header.coefficients:
        _refuse_many_scans(file)
    if image.format == "PPM":
        use_own_decoder(image)
    if isinstance(image, PngImagePlugin.PngImageFile):
        image.load_end = _nothing  # type: ignore[method-assign]  # it reads what follows the pixels
    return image


def _nothing() -> None:
    """No metadata is read."""


def _open_heif(file: IO[bytes]) -> Image.Image:
    """An image in the format of iPhones, if the package is installed that reads it.

    The package is imported when there is such a photo: it takes memory.
    """
    file.seek(0)
    head = file.read(16)
    if head[4:8] != b"ftyp" or head[8:12] not in _HEIF:
        raise ValueError("not an image in a known format" if head else "the file is empty")
    try:
        from pillow_heif import HeifImagePlugin  # noqa: F401 - importing registers it
    except ImportError:
        raise ValueError(
            'reading HEIC photos needs pillow-heif: pip install "pocketune[heif]", or export it as '
            "JPEG"
        ) from None
    file.seek(0)
    try:
        return Image.open(file, formats=("HEIF",))
    except UnidentifiedImageError:
        raise ValueError("the file is damaged") from None


def _refuse_endless(file: IO[bytes]) -> None:
    """Refuse a file of which Pillow reads too much when it opens it."""
    head, size, what = file.read(18), 0, "its file"
    if head.startswith(b"RIFF") or head[4:8] == b"ftyp":
        size = file.seek(0, os.SEEK_END)
    elif head.startswith((b"II", b"MM")):
        size, what = tag_bytes(file), "the metadata"
    elif head.startswith(b"BM"):
        size, what = int.from_bytes(head[14:], "little"), "the header"
    file.seek(0)
    if size > MAX_WORKING_BYTES:
        raise ValueError(
            f"{what} of {size >> 20} MB is larger than the {MAX_WORKING_BYTES >> 20} MB allowed; "
            "make it smaller"
        )


def _refuse_many_scans(file: IO[bytes]) -> None:
    """Refuse a JPEG of scans that would be decoded for minutes: each scan passes over it all."""
    position, scans, before = file.tell(), 0, b""
    file.seek(0)
    while chunk := file.read(_CHUNK):
        scans += (before + chunk).count(_SCAN)
        before = chunk[-1:]
    file.seek(position)
    if scans > _MOST_SCANS:
        raise ValueError(f"it has {scans:,} scans; save it as an ordinary JPEG")


@contextmanager
def reading_image(name: str) -> Iterator[None]:
    """Turn any error while the file `name` is read and decoded into `UnreadableImage`."""
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
    if "truncated" in str(error).lower():
        return "the file is cut off; copy it again"
    if str(error).startswith("decoder error"):  # an error number of libtiff
        return "the file is damaged"
    return str(error) or type(error).__name__
