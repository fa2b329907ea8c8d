"""Decodes PPM and PGM files whose largest value is not 255; Pillow takes seconds a megapixel."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageFile

from pocketune.data.decoding import PIXELS

_PILLOWS, _OURS = "ppm", "pocketune.ppm"


class _Decoder(ImageFile.PyDecoder):
    """Scales values to those of the image's mode, strip by strip."""

    _pulls_fd = True

    def decode(self, buffer: Any) -> tuple[int, int]:  # noqa: ARG002 - it reads the file
        """See Pillow: the bytes that are consumed, or -1 at the end, and an error number."""
        assert self.fd is not None
        assert self.im is not None
        largest, bands = self.args[-1], Image.getmodebands(self.mode)
        width, height = self.state.xsize, self.state.ysize
        given = np.dtype(np.uint8 if largest < 256 else ">u2")
        most, kept = (65535, np.int32) if self.mode == "I" else (255, np.uint8)
        scaled = np.minimum(np.rint(np.arange(256**given.itemsize) / largest * most), most)
        table = scaled.astype(kept)
        count = max(1, PIXELS // width)
        for top in range(0, height, count):
            bottom = min(top + count, height)
            size = (bottom - top) * width * bands
            data = self.fd.read(size * given.itemsize)
            if len(data) < size * given.itemsize:
                raise OSError("image file is truncated")
            rows = table[np.frombuffer(data, given)].reshape(bottom - top, width, -1)
            strip = Image.fromarray(rows if bands > 1 else rows[..., 0])
            self.im.paste(strip.im, (0, top, width, bottom))
        return -1, 0


Image.register_decoder(_OURS, _Decoder)


def use_own_decoder(image: Image.Image) -> None:
    """Have an image that is not decoded yet decoded here, if it is one of these."""
    if isinstance(image, ImageFile.ImageFile):
        image.tile = [_ours(tile) if tile[0] == _PILLOWS else tile for tile in image.tile]


def _ours(tile: Any) -> Any:
    if hasattr(tile, "_replace"):
        return tile._replace(codec_name=_OURS)
    return (_OURS, *tile[1:])  # of Pillow before 11
