"""Decodes PPM, PGM and PBM files of text, and of a largest value that is not 255.

Pillow takes seconds a megapixel, and for text more than twice the memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from pocketune.data.images.cost import PIXELS

_OURS = {"ppm": "pocketune.ppm", "ppm_plain": "pocketune.ppm_plain"}
_BLOCK = 1 << 16  # bytes of text that are read at once
_LONGEST = 9  # digits of a number
_TOO_LARGE = 1 << 16
_COMMENT = re.compile(rb"#[^\r\n]*(?=[\r\n])")
_SPACES = b" \t\n\v\f\r"
_NUMBERS = re.compile(rb"[0-9\s]*")

Values = npt.NDArray[np.integer]


class _Decoder(ImageFile.PyDecoder):
    """Scales values to those of the image's mode, strip by strip."""

    _pulls_fd = True

    def decode(self, buffer: Any) -> tuple[int, int]:  # noqa: ARG002 - it reads the file
        """See Pillow: the bytes that are consumed, or -1 at the end, and an error number."""
        assert self.fd is not None
        assert self.im is not None
        bands, table = Image.getmodebands(self.mode), _table(self.mode, self.args[-1])
        for left, top, right, bottom in _strips(
            self.state.xsize, self.state.ysize, PIXELS // bands
        ):
            size = (bottom - top) * (right - left) * bands
            values = self._values(self.fd, size)
            if len(values) < size:
                raise OSError("image file is truncated")
            rows = table[values].reshape(bottom - top, right - left, -1)
            strip = Image.fromarray(rows if bands > 1 else rows[..., 0])
            self.im.paste(strip.convert(self.mode).im, (left, top, right, bottom))
        return -1, 0

    def _values(self, file: IO[bytes], count: int) -> Values:
        """The next values (count,) of the file, or fewer at its end."""
        given = np.dtype(np.uint8 if self.args[-1] < 256 else ">u2")
        data = file.read(count * given.itemsize)
        return np.frombuffer(data, given, len(data) // given.itemsize)


class _TextDecoder(_Decoder):
    """Scales values that are written in decimal, or as digits 0 and 1 in a mode of one bit."""

    _numbers: Iterator[Values] | None = None
    _waiting: Values = np.zeros(0, np.int32)

    def _values(self, file: IO[bytes], count: int) -> Values:
        bits = self.mode == "1"
        self._numbers = self._numbers or map(
            _digits if bits else _parsed, _texts(file, divisible=bits)
        )
        parts, found = [self._waiting], len(self._waiting)
        while found < count and (part := next(self._numbers, None)) is not None:
            parts.append(part)
            found += len(part)
        values = np.concatenate(parts)
        values, self._waiting = values[:count], values[count:]
        if values.max(initial=0) > (1 if bits else self.args[-1]):
            raise ValueError("a value is larger than the largest that the file names")
        return values


def _strips(width: int, height: int, most: int) -> Iterator[tuple[int, int, int, int]]:
    """Rows or parts of a row, with at most so many pixels, in the order of these."""
    count = max(1, most // width)
    for top in range(0, height, count):
        for left in range(0, width, most):
            yield left, top, min(left + most, width), min(top + count, height)


def _table(mode: str, largest: Any) -> npt.NDArray[np.int32 | np.uint8]:
    """The pixel of each value."""
    if mode == "1":
        return np.array([255, 0], np.uint8)
    most, kept = (65535, np.int32) if mode == "I" else (255, np.uint8)
    scaled = np.rint(np.arange(256 if largest < 256 else 65536) / largest * most)
    table: npt.NDArray[np.int32 | np.uint8] = np.minimum(scaled, most).astype(kept)
    return table


def _texts(file: IO[bytes], *, divisible: bool) -> Iterator[bytes]:
    """The text of a file in parts, without comments; it ends before anything but a number.

    Args:
        file: The file.
        divisible: Whether the parts may divide what has no spaces in it.
    """
    left = b""
    for block in chain(iter(lambda: file.read(_BLOCK), b""), [b"\n"]):
        text, comment, _ = _COMMENT.sub(b"", left + block).partition(b"#")
        whole = divisible or text[-1:].isspace()
        number = b"" if whole else b"".join(text.rsplit(None, 1)[-1:])
        if len(number) > _LONGEST:
            raise ValueError("a value has too many digits")
        left = number + comment
        text = text[: len(text) - len(number)]
        numbers = _NUMBERS.match(text)
        assert numbers is not None
        yield numbers[0]
        if numbers.end() < len(text):
            return


def _parsed(text: bytes) -> Values:
    """The numbers of a text; those that no image may have are `_TOO_LARGE`."""
    if not text.strip():
        return np.zeros(0, np.int32)
    return np.minimum(np.fromstring(text, np.int64, sep=" "), _TOO_LARGE).astype(np.int32)


def _digits(text: bytes) -> Values:
    """The digits of a text, with or without spaces between them."""
    digits: Values = np.frombuffer(text.translate(None, _SPACES), np.uint8) - np.uint8(ord("0"))
    return digits


for _codec, _kind in zip(_OURS.values(), (_Decoder, _TextDecoder), strict=True):
    Image.register_decoder(_codec, _kind)


def use_own_decoder(image: Image.Image) -> None:
    """Have an image that is not decoded yet decoded here, if it is one of these."""
    if isinstance(image, ImageFile.ImageFile):
        image.tile = [
            tile._replace(codec_name=_OURS.get(tile.codec_name, tile.codec_name))
            for tile in image.tile
        ]
