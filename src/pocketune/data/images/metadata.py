"""Image files without the metadata that Pillow would keep in memory, such as texts and previews.

A JPEG or GIF may have any number of megabytes of it, and a few kB of a PNG may become many.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import IO, TYPE_CHECKING, cast

from pocketune.data.images.segments import gif_extensions, jpeg_segments, png_chunks

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_MOST = 1 << 18
"""Bytes of segments that a JPEG keeps, and of comments of a GIF."""
_COMMENT, _APPLICATION = 0xFE, range(0xE0, 0xF0)  # a GIF has the same number for its comments
_DECODING = (b"JFIF\0", b"Adobe", b"Exif\0\0", b"http://ns.adobe.com/xap/1.0/\0")
"""What decoding a JPEG depends on, and what may say how it is turned."""
_LONGEST = 1 << 20
"""Bytes of a chunk of a PNG that may say how it is turned."""
_CHUNKS = frozenset(b"IHDR PLTE tRNS IDAT IEND acTL fcTL fdAT sRGB gAMA pHYs cHRM".split())
_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_TURNING = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")


def without_metadata(file: IO[bytes]) -> IO[bytes]:
    """The file, or if it is a JPEG, PNG or GIF of much metadata a view of it without that.

    Either is at its beginning. What says how the image is turned stays.
    """
    file.seek(0)
    head = file.read(8)
    left_out: list[tuple[int, int]] = []
    if head.startswith(b"\xff\xd8\xff"):
        left_out = _segments(file)
    elif head == b"\x89PNG\r\n\x1a\n":
        left_out = list(_chunks(file))
    elif head.startswith(b"GIF8"):
        left_out = _much(each[1:] for each in gif_extensions(file) if each.kind == _COMMENT)
    file.seek(0)
    return cast("IO[bytes]", _View(file, left_out)) if left_out else file


def _segments(file: IO[bytes]) -> list[tuple[int, int]]:
    """The segments of metadata of a JPEG that has much of it, but the first of each needed kind."""
    metadata, needed = [], set[bytes]()
    for segment in jpeg_segments(file):
        if segment.kind != _COMMENT and segment.kind not in _APPLICATION:
            continue
        start = file.read(32)
        kind = next((each for each in _DECODING if start.startswith(each)), b"")
        if kind and kind not in needed:
            needed.add(kind)
        else:
            metadata.append((segment.start, segment.end))
    return _much(metadata)


def _much(metadata: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a file; none if they are few bytes."""
    parts = list(metadata)
    return parts if sum(end - start for start, end in parts) > _MOST else []


def _chunks(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """The chunks before the pixels of a PNG that decoding and turning it do not need."""
    for chunk in png_chunks(file):
        turning = chunk.kind == b"eXIf" or (
            chunk.kind in _TEXTS and file.read(32).startswith(_TURNING)
        )
        if chunk.kind not in _CHUNKS and not (turning and chunk.end - chunk.start <= _LONGEST):
            yield chunk.start, chunk.end


class _View(io.RawIOBase):
    """A file for reading without some of its parts, which are in order."""

    def __init__(self, file: IO[bytes], left_out: list[tuple[int, int]]) -> None:
        self._file, self._position = file, 0
        ends = [0, *(end for _, end in left_out)]
        lengths = [start - end for end, (start, _) in zip(ends, left_out, strict=False)]
        self._starts = [0, *accumulate(lengths)]  # of the remaining parts, in the view
        self._places = ends  # and in the file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            left_out = self._places[-1] - self._starts[-1]
            offset += self._file.seek(0, os.SEEK_END) - left_out
        elif whence == os.SEEK_CUR:
            offset += self._position
        self._position = max(0, offset)
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        found, wanted = 0, memoryview(buffer).cast("B")
        while found < len(wanted):
            part = bisect_right(self._starts, self._position) - 1
            end = self._starts[part + 1] if part + 1 < len(self._starts) else None
            size = len(wanted) - found
            if end is not None:
                size = min(size, end - self._position)
            self._file.seek(self._places[part] + self._position - self._starts[part])
            data = self._file.read(size)
            if not data:
                break
            wanted[found : found + len(data)] = data
            found += len(data)
            self._position += len(data)
        return found
