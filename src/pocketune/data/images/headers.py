"""Headers of image files: what Pillow would say of a file, in a fifth of the time.

Before training, the header of every photo is read, which sets the time until the first step. What
is usual is read here; of anything else nothing is said, and Pillow has to read it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from pocketune.data.images.segments import SCAN

BEGINNING = 4096
"""Bytes that hold the whole header of most files."""
LARGEST = 1 << 18
"""Bytes that hold the header of nearly all others, such as a JPEG with a preview in its notes."""
_MOST_PIXELS = 80_000_000  # below the number that Pillow warns of

_PNG_MODES = {
    (1, 0): "1", (2, 0): "L", (4, 0): "L", (8, 0): "L", (16, 0): "I;16",
    (8, 2): "RGB", (16, 2): "RGB",
    (1, 3): "P", (2, 3): "P", (4, 3): "P", (8, 3): "P",
    (8, 4): "LA", (16, 4): "RGBA",
    (8, 6): "RGBA", (16, 6): "RGBA",
}  # fmt: skip
_PNG_LENGTHS = {b"sRGB": 1, b"gAMA": 4, b"pHYs": 9, b"cHRM": 32}
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_SOF, _PROGRESSIVE = (0xC0, 0xC1, 0xC2), 0xC2
_SKIPPED = frozenset((0xC4, 0xDD, 0xFE))  # Huffman tables, restart interval, comment


class Header(NamedTuple):
    """What decoding an image takes depends on this.

    Attributes:
        format: As Pillow names it, such as `JPEG`.
        mode: Pillow's mode of the decoded pixels.
        width: In pixels, before the image is turned upright.
        height: The same.
        coefficients: For each pixel, the coefficients that a JPEG of several scans holds until its
            last one, such as a progressive JPEG; 0 for others.
        streamed: Whether it is a PNG whose rows can be decoded one by one.
        file_bytes: Size of a file that is read as a whole, with a decompressed strip of a TIFF, or
            of the copy of a TIFF that is turned; 0 for others.
        planes: For each pixel, bytes of the decoded planes of an AVIF or HEIC; 0 for others.
        metadata: Bytes of profiles, notes and the like that are held while the file is open.
    """

    format: str
    mode: str
    width: int
    height: int
    coefficients: float = 0.0
    streamed: bool = False
    file_bytes: int = 0
    planes: float = 0.0
    metadata: int = 0


def read_header(read: Callable[[int], bytes]) -> Header | None:
    """The header of a file that Pillow opens without a complaint; None if that is not certain.

    Args:
        read: Gives the first bytes of the file, as many as it is asked for, if there are so many.
    """
    for size in (BEGINNING, LARGEST):
        data = read(size)
        with suppress(IndexError, struct.error):
            return _jpeg(data) if data.startswith(b"\xff\xd8\xff") else _png(data)
        if len(data) < size:
            break
    return None


def _jpeg(data: bytes) -> Header | None:
    """The header of a JPEG; IndexError or struct.error if it goes on behind the data."""
    position, frame, progressive = 2, None, False
    while True:
        prefix, marker, length = struct.unpack_from(">BBH", data, position)
        position, end = position + 4, position + 2 + length
        if prefix != 0xFF or length < 2:
            return None
        if end > len(data):
            raise IndexError
        if marker in _SOF:
            if frame is not None:
                return None
            frame, progressive = data[position:end], marker == _PROGRESSIVE
        elif marker == SCAN:  # behind the header
            if frame is None or len(frame) < 6:
                return None
            return _frame(frame, several=progressive or data[position] < frame[5])
        elif marker == 0xDB:
            if not _are_tables(data, position, end):
                return None
        elif 0xE0 <= marker <= 0xEF:
            if not _is_plain(marker, data[position : position + 14], end - position):
                return None
        elif marker not in _SKIPPED:
            return None
        position = end


def _frame(segment: bytes, *, several: bool) -> Header | None:
    """The header from a start of frame, of a JPEG of one scan or of several."""
    bits, height, width, layers = struct.unpack_from(">BHHB", segment)
    mode = _JPEG_MODES.get(layers)
    if bits != 8 or mode is None or len(segment) != 6 + 3 * layers:
        return None
    if not 0 < width * height <= _MOST_PIXELS:
        return None
    samples = [(each >> 4) * (each & 15) for each in segment[7::3]]
    if not all(samples):
        return None
    coefficients = sum(samples) / max(samples) if several else 0.0
    return Header("JPEG", mode, width, height, coefficients)


def _are_tables(data: bytes, position: int, end: int) -> bool:
    """Whether a segment consists of whole quantization tables."""
    while position < end:
        position += 129 if data[position] >> 4 else 65
    return position == end


def _is_plain(marker: int, segment: bytes, length: int) -> bool:
    """Whether Pillow reads an application segment without a complaint, and as of one image."""
    if marker == 0xE0 and segment.startswith(b"JFIF"):
        return length >= 7
    if marker == 0xE2:
        return not segment.startswith((b"MPF\0", b"ICC_PROFILE\0")) or (
            segment.startswith(b"ICC") and length >= 14
        )
    if marker == 0xED:
        return not segment.startswith(b"Photoshop")
    return not (marker == 0xEE and segment.startswith(b"Adobe") and length < 7)


def _png(data: bytes) -> Header | None:
    """The header of a PNG; IndexError or struct.error if it goes on behind the data."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"):
        return None
    width, height, bits, colors, _, unknown, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    mode = _PNG_MODES.get((bits, colors))
    if mode is None or unknown or not 0 < width * height <= _MOST_PIXELS:
        return None
    position = 8
    while True:
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IDAT":
            streamed = bits == 8 and not interlaced
            return Header("PNG", mode, width, height, streamed=streamed)
        end = position + 12 + length
        if position > 8 and _PNG_LENGTHS.get(kind) != length and kind != b"PLTE":
            return None
        (crc,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(data[position + 4 : end - 4]) != crc:
            return None
        position = end
