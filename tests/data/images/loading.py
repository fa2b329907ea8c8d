"""Whole images, for the tests of how they are read."""

import io
import os
from pathlib import Path
from typing import IO

from PIL import Image

from pocketune.data.images.decode import decode
from pocketune.data.images.opening import open_image, reading_image


def load_image(data: bytes | str | Path) -> Image.Image:
    """The image in the bytes of a file or at a path, upright, in mode RGB."""
    name = "the image" if isinstance(data, bytes) else os.fspath(data)
    with reading_image(name), _binary(data) as file:
        return decode(open_image(file))


def _binary(data: bytes | str | Path) -> IO[bytes]:
    return io.BytesIO(data) if isinstance(data, bytes) else Path(data).open("rb")
