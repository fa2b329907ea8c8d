"""The segments of a JPEG, the chunks of a PNG, the extensions of a GIF and the tags of a TIFF.

They are those before the pixels; no pixel is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

SCAN, IDAT = 0xDA, b"IDAT"
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # but tables, and one that is reserved
_EXTENSION, _FRAME_OR_END = 0x21, (0x2C, 0x3B)
_TYPES = dict(enumerate((1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4), 1)) | dict.fromkeys(
    (16, 17, 18), 8
)
"""Bytes of a value of each type of a TIFF's tags."""
_CLASSIC, _BIG = ("4xI", "H", "2xHI4x", 4), ("8xQ", "Q", "2xHQ8x", 8)
"""How a TIFF, and one of 64 bits, writes the place of its tags, their number and a tag; and bytes
of a value that are in the tag itself."""
_MOST_TAGS, _FEW = 1 << 16, 1 << 18
_MOST_FILL = 1 << 10
"""Bytes 0xFF before a marker, which may be any number, that are passed over."""
_WITHOUT_LENGTH = frozenset({0x01, 0xFF, *range(0xD0, 0xDA)})


class Segment(NamedTuple):
    """A segment of a JPEG, a chunk of a PNG or an extension of a GIF.

    Attributes:
        kind: The second byte of its marker, the chunk's type such as `IHDR`, or the label.
        start: Position of its first byte in the file.
        end: Position behind it.
    """

    kind: int | bytes
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


def png_chunks(file: IO[bytes]) -> Iterator[Segment]:
    """The chunks of a PNG until its first pixels, as `jpeg_segments` returns segments."""
    position = 8
    while True:
        file.seek(position)
        head = file.read(8)
        if len(head) < 8:
            return
        length, kind = struct.unpack(">I4s", head)
        end = position + 12 + length
        yield Segment(kind, position, end)
        if kind == IDAT:
            return
        position = end


def gif_extensions(file: IO[bytes]) -> Iterator[Segment]:
    """The extensions of a GIF before its first frame, or until damage."""
    file.seek(10)
    flags = (file.read(3) or b"\0")[0]
    position = 13 + (6 << (flags & 7) if flags & 0x80 else 0)
    while True:
        file.seek(position)
        head, end = file.read(2), position + 2
        if len(head) < 2 or head[0] in _FRAME_OR_END:
            return
        if head[0] != _EXTENSION:  # Pillow passes over it
            position += 1
            continue
        while size := int.from_bytes(file.read(1), "big"):
            end += 1 + size
            file.seek(end)
        position, start = end + 1, position
        yield Segment(head[1], start, position)


def tag_bytes(file: IO[bytes]) -> int:
    """Bytes of the tags of a TIFF's first page, beside those in the directory itself.

    Tags that are said to be larger than the file do not count where there are many bytes.
    """
    file.seek(0)
    head = file.read(16)
    order, is_big = "<" if head.startswith(b"II") else ">", b"+" in head[2:4]
    first, count, entry, room = _BIG if is_big else _CLASSIC
    try:
        file.seek(*struct.unpack_from(order + first, head))
        (entries,) = struct.unpack(order + count, file.read(struct.calcsize(order + count)))
    except (struct.error, OverflowError):
        return 0
    tag = struct.Struct(order + entry)
    data = file.read(tag.size * min(entries, _MOST_TAGS))
    whole = tag.iter_unpack(data[: len(data) // tag.size * tag.size])
    sizes: list[int] = [values * _TYPES.get(kind, 0) for kind, values in whole]
    found = sum(size for size in sizes if size > room)
    if found <= _FEW:
        return found
    most = file.seek(0, os.SEEK_END)  # takes long in an archive
    return sum(size for size in sizes if room < size <= most)


def has_divided_scans(file: IO[bytes]) -> bool:
    """Whether the first scan of a JPEG has not all components, so that its decoder keeps them all.

    Such is a JPEG of one scan for each component, whether it is progressive or not.
    """
    components = 0
    for segment in jpeg_segments(file):
        if segment.kind in FRAMES:
            components = int.from_bytes(file.read(6)[5:], "big")
        elif segment.kind == SCAN:
            return int.from_bytes(file.read(1), "big") < components
    return False
