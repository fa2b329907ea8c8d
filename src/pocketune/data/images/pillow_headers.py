"""Headers of images that Pillow has opened: what decoding them takes depends on these."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any, TypeVar

from PIL import Image, TiffImagePlugin

from pocketune.data.images.avif import avif_planes
from pocketune.data.images.cost import READ_WHOLE, pixel_bytes
from pocketune.data.images.decode import EXIF_ORIENTATION, UPRIGHT, orientation
from pocketune.data.images.headers import Header
from pocketune.data.images.heif import heif_planes
from pocketune.data.images.segments import has_divided_scans, tag_bytes

PNG_CHANNELS = {"L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_YCBCR, _CONVERTED_BITS = 6, 32  # the library converts it to red, green, blue and alpha
_TILE_BYTES = 325  # the tag of their numbers
T = TypeVar("T")


def header_of(image: Image.Image) -> Header:
    """What decoding an image takes depends on this; see `Header`."""
    if image.format in ("JPEG", "MPO"):
        return Header("JPEG", image.mode, *image.size, _coefficients(image))
    kind = image.format or ""
    planes = 0.0
    if kind == "AVIF":
        planes = avif_planes(_content(image), image.size, alpha="A" in image.mode)
    elif kind == "HEIF":
        planes = heif_planes(_content(image))
    return Header(
        kind,
        image.mode,
        *image.size,
        streamed=is_streamed(image),
        file_bytes=_file_bytes(image),
        planes=planes,
        metadata=_metadata_bytes(image),
    )


def _coefficients(image: Image.Image) -> float:
    """The coefficients for each pixel that a JPEG keeps until its last scan, if it has several."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if not image.info.get("progressive") and not (file and _at_rest(file, has_divided_scans)):
        return 0.0
    areas: list[int] = [across * down for _, across, down, *_ in getattr(image, "layer", ())]
    return sum(areas) / max(areas)


def _at_rest(file: IO[bytes], read: Callable[[IO[bytes]], T]) -> T:
    """What is read of a file, whose position stays."""
    position = file.tell()
    try:
        return read(file)
    finally:
        file.seek(position)


def _file_bytes(image: Image.Image) -> int:
    """Size of the file of an image that is not decoded yet, of a format that is read as a whole."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if image.format not in READ_WHOLE or file is None:
        return 0
    size = _at_rest(file, lambda opened: opened.seek(0, os.SEEK_END))
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return size
    if image.info.get("compression") == "raw":
        size = 0
    else:
        size = min(size, _read_bytes(image, file) or size) + _strip_bytes(image)
    is_turned = image.tag_v2.get(EXIF_ORIENTATION, 1) in UPRIGHT  # by Pillow, as a whole
    return max(size, is_turned * image.width * image.height * pixel_bytes(image.mode))


def _metadata_bytes(image: Image.Image) -> int:
    """Bytes beside the pixels that an image of such a format holds until its file is closed."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    if image.format not in READ_WHOLE or file is None:
        return 0
    if image.format == "TIFF":
        return _at_rest(file, tag_bytes)
    return sum(len(value) for value in image.info.values() if isinstance(value, bytes))


def _read_bytes(image: TiffImagePlugin.TiffImageFile, file: IO[bytes]) -> int:
    """Bytes of the strips or tiles of a TIFF's first page; 0 if more of its file is read.

    They are read from a file of the system. One in an archive is in memory with all of its pages.
    """
    try:
        file.fileno()
    except (AttributeError, OSError):
        return 0
    if image.info.get("compression") == "tiff_jpeg":  # its tables are elsewhere
        return 0
    tags = image.tag_v2
    counts = tags.get(TiffImagePlugin.STRIPBYTECOUNTS) or tags.get(_TILE_BYTES)
    return sum(counts) if isinstance(counts, tuple) else 0


def _strip_bytes(image: TiffImagePlugin.TiffImageFile) -> int:
    """Bytes of a strip or tile of a compressed TIFF, which is decompressed before it is copied."""
    tags = image.tag_v2
    width = tags.get(TiffImagePlugin.TILEWIDTH, image.width)
    rows = tags.get(TiffImagePlugin.TILELENGTH, tags.get(TiffImagePlugin.ROWSPERSTRIP))
    bits = sum(tags.get(TiffImagePlugin.BITSPERSAMPLE, (8,)))
    converted = tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == _YCBCR
    if converted and image.info.get("compression") != "jpeg":
        bits += _CONVERTED_BITS
    return int(width * min(rows or image.height, image.height) * bits) // 8


def _content(image: Image.Image) -> bytes:
    """The file of an image; nothing if it is decoded."""
    file: IO[bytes] | None = getattr(image, "fp", None)
    return b"" if file is None else _at_rest(file, _whole)


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def is_streamed(image: Image.Image) -> bool:
    """Whether an image that is not decoded yet is a PNG whose rows can be decoded one by one."""
    tiles: list[tuple[Any, ...]] = getattr(image, "tile", [])
    return bool(
        image.format == "PNG"
        and len(tiles) == 1
        and tiles[0][3] == image.mode  # a byte for each channel
        and image.mode in PNG_CHANNELS
        and not image.info.get("interlace")
        and not getattr(image, "is_animated", False)
        and orientation(image) < 5
    )
