"""A part of a large image, resized strip by strip.

The pixels are those of Pillow's `resize`, which first resizes rows and then columns, each with
8-bit results. Only the format's own pixels are in memory as a whole; of a usual PNG, whose rows are
decompressed one after the other, not even those.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt
from PIL import Image

from pocketune.data.images.cost import PIXELS
from pocketune.data.images.decode import orientation, oriented_size, to_rgb, upright
from pocketune.data.images.pillow_headers import PNG_CHANNELS, is_streamed

_BLOCK = 1 << 16  # bytes that are read or decompressed at once
_REVERSED = (3, 4, 7, 8)  # orientations whose upright rows begin at the end of the stored image

_Box = tuple[float, float, float, float]


def is_better_in_strips(image: Image.Image) -> bool:
    """Whether an image is not decoded whole, or is turned or converted, which makes copies.

    Pixels of 32 bits are scaled by their maximum, so that all are needed at once.
    """
    if image.mode in ("I", "F"):
        return False
    as_it_is = image.mode == "RGB" and "transparency" not in image.info
    return is_streamed(image) or not as_it_is or orientation(image) != 1


def resized_in_strips(
    image: Image.Image, box: _Box, columns: int, rows: int
) -> npt.NDArray[np.uint8]:
    """A part of an image as uint8 (rows, columns, 3).

    Args:
        image: From `open_image`; a JPEG at the scale at which it is to be decoded.
        box: Left, top, right and bottom of the part, in pixels of the upright image.
        columns: Width of the result.
        rows: Its height.
    """
    turn = orientation(image)  # loading the image may discard it
    height = oriented_size(image)[1]
    left, top, right, bottom = box
    reach = max(1.0, (bottom - top) / rows) + 1  # of the filter, in rows
    narrow = Image.new("RGB", (columns, height), None)
    for start, strip in _upright_strips(image, turn, top - reach, bottom + reach):
        across = (left, 0, right, strip.height)
        resized = strip.resize((columns, strip.height), Image.Resampling.BILINEAR, box=across)
        narrow.paste(resized, (0, start))
    down = (0, top, columns, bottom)
    return np.asarray(narrow.resize((columns, rows), Image.Resampling.BILINEAR, box=down))


def _upright_strips(
    image: Image.Image, turn: int, first: float, last: float
) -> Iterator[tuple[int, Image.Image]]:
    """Upright rows with their position, in RGB; all from row `first` to row `last`."""
    turned = turn >= 5  # then the upright rows are the stored columns
    length = image.width if turned else image.height
    if turn in _REVERSED:
        first, last = length - last, length - first
    strips = _columns(image) if turned else _rows(image)
    for start, strip in strips:
        size = strip.width if turned else strip.height
        if start > last:
            return
        if start + size >= first:
            place = length - start - size if turn in _REVERSED else start
            yield place, upright(to_rgb(strip), turn)


def _rows(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Rows of the image as it is stored."""
    if is_streamed(image):
        yield from _png_rows(image)
        return
    image.load()
    each = max(1, PIXELS // image.width)
    for start in range(0, image.height, each):
        yield start, image.crop((0, start, image.width, min(start + each, image.height)))


def _columns(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Columns of the image as it is stored."""
    image.load()
    each = max(1, PIXELS // image.height)
    for start in range(0, image.width, each):
        yield start, image.crop((start, 0, min(start + each, image.width), image.height))


def _png_rows(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Rows of a PNG, which are decompressed here; Pillow undoes their filters, strip by strip.

    The filter of a row may refer to the row above, so each strip is decoded with the last row of
    the strip before it.
    """
    rows = _Rows(image.fp, image.tile[0][2] - 8)  # type: ignore[attr-defined]
    stride = 1 + image.width * PNG_CHANNELS[image.mode]
    each, above = max(1, PIXELS // image.width), b""
    for start in range(0, image.height, each):
        count = min(each, image.height - start)
        data = rows.read(count * stride)
        if len(data) < count * stride:
            raise OSError("image file is truncated")
        size = (image.width, count + bool(above))
        packed = zlib.compress(above + data, 0)
        strip = Image.frombytes(image.mode, size, packed, "zip", image.mode)
        last = strip.crop((0, size[1] - 1, *size))
        strip = strip.crop((0, 1, *size)) if above else strip
        above = b"\0" + last.tobytes()  # not filtered
        if image.palette is not None:
            strip.palette = image.palette.copy()
            strip.palette.dirty = 1
        strip.info = image.info.copy()
        strip.load()
        yield start, strip


class _Rows:
    """The decompressed rows of a PNG.

    Args:
        file: The file.
        position: Where its first chunk of pixels begins.
    """

    def __init__(self, file: IO[bytes], position: int) -> None:
        self._file, self._left = file, 0
        self._stream, self._waiting = zlib.decompressobj(), b""
        file.seek(position)
        self._begin()

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end."""
        found = bytearray()
        while len(found) < size and not self._stream.eof:
            data = self._waiting or self._read()
            if not data:
                break
            try:
                found += self._stream.decompress(data, size - len(found))
            except zlib.error as error:
                raise OSError("the file is damaged") from error
            self._waiting = self._stream.unconsumed_tail
        return bytes(found)

    def _read(self) -> bytes:
        """The next compressed bytes; empty behind the pixels."""
        while not self._left:
            self._file.read(4)  # a checksum, which Pillow does not look at either
            if not self._begin():
                return b""
        data = self._file.read(min(self._left, _BLOCK))
        self._left = self._left - len(data) if data else 0
        return data

    def _begin(self) -> bool:
        """Go to the next chunk; False if it does not hold pixels."""
        head = self._file.read(8)
        if len(head) < 8 or head[4:] != b"IDAT":
            return False
        (self._left,) = struct.unpack(">I", head[:4])
        return True
