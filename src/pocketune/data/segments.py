"""The segments of a JPEG and the chunks of a PNG, up to the pixels; no pixel is read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

SCAN, IDAT = 0xDA, b"IDAT"
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # but tables, and one that is reserved
_MOST_FILL = 1 << 10
"""Bytes 0xFF before a marker, which may be any number, that are passed over."""
_WITHOUT_LENGTH = frozenset({0x01, 0xFF, *range(0xD0, 0xDA)})


class Segment(NamedTuple):
    """A segment of a JPEG.

    Attributes:
        marker: The second byte of its marker.
        start: Position of the marker in the file.
        end: Position behind the segment.
    """

    marker: int
    start: int
    end: int


class Chunk(NamedTuple):
    """A chunk of a PNG.

    Attributes:
        kind: Such as `IHDR`.
        start: Position of its length in the file.
        end: Position behind its checksum.
    """

    kind: bytes
    start: int
    end: int


def jpeg_segments(file: IO[bytes]) -> Iterator[Segment]:
    """The segments of a JPEG until the first scan, which is the last one, or until damage.

    The file is at the segment's content when a segment is returned, and may be moved.
    """
    position = fill = 2
    while True:
        file.seek(position)
        head = file.read(4)
        if head.startswith(b"\xff\xff") and position - fill < _MOST_FILL:
            position += 1
            continue
        if len(head) < 4 or head[0] != 0xFF or head[1] in _WITHOUT_LENGTH:
            return
        end = position + 2 + int.from_bytes(head[2:], "big")
        yield Segment(head[1], position, end)
        if head[1] == SCAN:
            return
        position = fill = end


def png_chunks(file: IO[bytes]) -> Iterator[Chunk]:
    """The chunks of a PNG until its first pixels, likewise."""
    position = 8
    while True:
        file.seek(position)
        head = file.read(8)
        if len(head) < 8:
            return
        length, kind = struct.unpack(">I4s", head)
        end = position + 12 + length
        yield Chunk(kind, position, end)
        if kind == IDAT:
            return
        position = end


def has_divided_scans(file: IO[bytes]) -> bool:
    """Whether the first scan of a JPEG has not all components, so that its decoder keeps them all.

    Such is a JPEG of one scan for each component, whether it is progressive or not.
    """
    components = 0
    for segment in jpeg_segments(file):
        if segment.marker in FRAMES:
            components = int.from_bytes(file.read(6)[5:], "big")
        elif segment.marker == SCAN:
            return int.from_bytes(file.read(1), "big") < components
    return False
