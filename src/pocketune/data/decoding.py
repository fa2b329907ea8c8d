"""What decoding an image takes, from its header; and that large images are decoded one by one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.heap import freed_at_once

if TYPE_CHECKING:
    from pocketune.data.headers import Header

MAX_WORKING_BYTES = 128 << 20  # an image that would take more than this is refused
HEAVY_BYTES = 3 << 20  # above this, one image at a time
SMALL = 1 << 18
"""Pixels of an image that is decoded as a whole, which takes less time than in strips."""
PIXELS = 1 << 16
"""Pixels of a strip of a larger one."""

_SCALES = 8, 4, 2, 1  # a JPEG can be decoded at these fractions of its size
_SMALLEST_VIEW = 0.4
"""Least side of a part that a network sees, relative to the image's shorter side: training crops
have at least 22 % of the area and an aspect ratio of 3 to 4, and a task may enlarge twice."""

# Bytes for each pixel, measured with Pillow 13 (benchmarks/bench_photos.py).
_MODES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I": 17, "F": 17}
_OTHER_MODES = 4
_FORMATS = {"WEBP": 16, "HEIF": 10}  # of whole images, the decoder's copies included
_PLANES = 2.25
"""Copies of an AVIF's planes: decoded, with film grain, and what the decoder notes of blocks."""
READ_WHOLE = ("WEBP", "AVIF", "TIFF", "HEIF")  # their files are in memory too
_CONVERTED = {"RGB": 4, "1": 6, "L": 6, "P": 6, "CMYK": 8, "I": 17, "F": 17}
_OTHERS_CONVERTED = 17  # through RGBA, with the page behind it
_STRIP = 8, 32  # of RGB, and of a mode that is converted
_ROWS = 200_000  # what the decoder itself holds
_STREAM = 1_200_000  # copies of the rows of a PNG, compressed and not, that are decoded one by one
MASK_BYTES = 3
"""For each pixel of a mask: decoded, as an array, and its class."""

_heavy = threading.Lock()


@dataclass(frozen=True)
class Decoding:
    """What decoding the photos of a set takes.

    Attributes:
        name: The photo that takes most.
        header: Its header.
        most: Bytes that it takes.
        others: Most bytes that any takes at the same time as another, for the part of it that
            takes least or more.
    """

    name: str
    header: Header
    most: int
    others: int

    def total(self, workers: int) -> int:
        """Bytes that so many threads take together."""
        return self.most + (workers - 1) * self.others


class LargestDecoding:
    """Finds what decoding takes most, photo by photo.

    Args:
        size: Height and width of the squares that photos are cut to.
        masks: Whether each has a mask.
    """

    def __init__(self, size: int, masks: bool = False) -> None:
        self._size, self._masks = size, masks
        self._most, self._others = -1, 0
        self._found: tuple[str, Header] | None = None

    def add(self, name: str, header: Header) -> None:
        """Another photo of the set."""
        taken = view_bytes(header, self._size)
        if self._masks:
            taken += MASK_BYTES * header.width * header.height
        if least_bytes(header, self._size) <= HEAVY_BYTES:  # a view may be light, others not
            self._others = max(self._others, min(taken, HEAVY_BYTES))
        if taken > self._most:
            self._most, self._found = taken, (name, header)

    @property
    def decoding(self) -> Decoding | None:
        """What was found; None without photos."""
        return self._found and Decoding(*self._found, self._most, self._others)


def check_size(header: Header, max_pixels: int | None = None) -> None:
    """Refuse an image that is too large.

    Args:
        header: Of the image.
        max_pixels: Most pixels of an image that is decoded in full, as ordinary JPEGs and PNGs of
            8 bits a channel are not; None for the limit on bytes alone, which always holds.

    Raises:
        ValueError: It is too large.
    """
    pixels, needed = header.width * header.height, limited_bytes(header)
    if needed > MAX_WORKING_BYTES:
        raise ValueError(
            f"its {header.width} x {header.height} pixels take {needed >> 20} MB to decode, more "
            f"than the {MAX_WORKING_BYTES >> 20} MB allowed; make it smaller"
        )
    in_part = header.streamed or (header.format == "JPEG" and not header.coefficients)
    if max_pixels is not None and pixels > max_pixels and not in_part:
        raise ValueError(
            f"its {header.width} x {header.height} pixels would be decoded in full, and max_pixels "
            f"is {max_pixels:,}; allow more, or make it smaller with pocketune prepare"
        )


def limited_bytes(header: Header) -> int:
    """What counts for the limit on sizes, whatever the decoder takes.

    A large JPEG is decoded at a quarter of its size or less, but one of several scans keeps two
    bytes for every coefficient at full size until its last scan.
    """
    pixels = header.width * header.height
    if header.format != "JPEG":
        return pixels * (4 if header.mode == "RGB" else 8)
    return pixels * 4 // 16 + _coefficient_bytes(header)


def view_bytes(header: Header, size: int) -> int:
    """Most bytes for cutting a square of ``size`` pixels out of an image, at any place."""
    scale = size / (_SMALLEST_VIEW * min(header.width, header.height))
    return decoding_bytes(header, scale, size)


def least_bytes(header: Header, size: int) -> int:
    """Bytes for shrinking the whole of an image to ``size`` pixels."""
    return decoding_bytes(header, size / max(header.width, header.height), size)


def decoding_bytes(header: Header, scale: float, columns: int) -> int:
    """Peak of the memory for decoding an image and shrinking a part of it.

    Args:
        header: Of the image. One of more pixels than ``SMALL`` is converted strip by strip.
        scale: By which the part is shrunk.
        columns: To which width.
    """
    width, height = header.width, header.height
    if header.format == "JPEG":
        fraction = next((each for each in _SCALES if each * scale <= 1), 1)
        width, height = -(-width // fraction), -(-height // fraction)
    pixels = width * height
    if pixels <= SMALL:
        converted = _CONVERTED.get(header.mode, _OTHERS_CONVERTED)
        taken = pixels * (converted + _decoder_bytes(header))
    else:
        taken = PIXELS * _STRIP[header.mode != "RGB"] + 4 * columns * max(width, height)
        if header.streamed:
            taken += _STREAM
        else:
            each = _decoder_bytes(header)
            taken += pixels * max(each, _MODES.get(header.mode, _OTHER_MODES))
    if header.format in READ_WHOLE:
        taken += header.file_bytes
    return int(taken) + _coefficient_bytes(header) + _ROWS


@contextmanager
def turn_for(taken: int) -> Iterator[None]:
    """A context to hold while so many bytes of pixels are in memory; only one may be heavy.

    The heap keeps nothing of a heavy one for reuse.
    """
    if taken <= HEAVY_BYTES:
        yield
        return
    with _heavy, freed_at_once():
        yield


def _decoder_bytes(header: Header) -> float:
    """Bytes for each pixel of a whole image, with the decoder's copies; 0 where it makes none."""
    if header.format != "AVIF":
        return _FORMATS.get(header.format, 0)
    return _PLANES * header.planes + len(header.mode) + _MODES.get(header.mode, _OTHER_MODES)


def _coefficient_bytes(header: Header) -> int:
    return int(2 * header.width * header.height * header.coefficients)
