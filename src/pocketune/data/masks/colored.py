"""Masks in colors, with the list of their classes: `labelmap.txt`, as CVAT exports it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import numpy as np
from PIL import Image

from pocketune.data.images.cost import COLORED_MASK_BYTES, turn_for
from pocketune.data.images.opening import open_image
from pocketune.data.masks.drawn import DrawnSource
from pocketune.data.masks.outlines import Canvas
from pocketune.data.masks.polygons import Pixels
from pocketune.data.names import Names
from pocketune.data.sources import Source
from pocketune.errors import PocketuneError
from pocketune.files import shown

LABEL_MAP = "labelmap.txt"
_LINE = re.compile(r"(.*?)\s*:\s*(\d{1,3})\s*,\s*(\d{1,3})\s*,\s*(\d{1,3})\s*(:.*)?")
_MODES = ("P", "RGB", "RGBA")
_VALUES = 256
_STRIP = 1 << 15
"""Pixels whose colors are looked up at once, each of which takes twenty bytes."""
_BASE = np.array([1 << 16, 1 << 8, 1], np.uint32)


class ColoredSource(DrawnSource):
    """Files, with masks in which numbers stand for colors; gray masks are left as they are.

    Args:
        source: The files.
        masks: The masks, sorted.
        colors: The value of each color, as `parse_label_map` gives it.
    """

    mask_bytes = COLORED_MASK_BYTES

    def __init__(self, source: Source, masks: Names, colors: Mapping[int, int]) -> None:
        super().__init__(source)
        self._masks = masks
        self._codes = np.array(sorted(colors), np.uint32)
        self._values = np.array([colors[code] for code in sorted(colors)], np.uint8)

    def file_of(self, name: str) -> str | None:
        """See `DrawnSource`."""
        return name if self._masks.find(name) is not None else None

    @contextmanager
    def draw(self, name: str) -> Iterator[IO[bytes]]:
        """See `DrawnSource`."""
        with self.files.open(name) as file:
            mask = self._numbered(file, name)
            file.seek(0)
            if mask is None:
                yield file
                return
        with io.BytesIO(mask) as drawn:
            yield drawn

    def _numbered(self, file: IO[bytes], name: str) -> bytes | None:
        """A mask in numbers; None if it is not in colors."""
        with open_image(file) as image, turn_for(self.mask_bytes * image.width * image.height):
            if image.mode not in _MODES or image.format == "JPEG":
                return None
            image.load()
            canvas = Canvas(image.height, image.width)
            count = max(1, _STRIP // image.width)
            for top in range(0, image.height, count):
                bottom = min(top + count, image.height)
                strip = image.crop((0, top, image.width, bottom))
                canvas.pixels[top:bottom] = self._numbers(strip, name)
        return canvas.done()

    def _numbers(self, strip: Image.Image, name: str) -> Pixels:
        """The value (height, width) of each pixel."""
        codes = np.asarray(strip.convert("RGB")) @ _BASE
        places = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        strange = codes[self._codes[places] != codes]
        if strange.size:
            color = ", ".join(str(int(strange[0]) >> shift & 255) for shift in (16, 8, 0))
            raise PocketuneError(
                f"the mask {shown(name)} has the color {color}, which {LABEL_MAP} does not list; "
                "add it there"
            )
        values: Pixels = self._values[places]
        return values


def parse_label_map(text: bytes, name: str) -> tuple[dict[int, int], bytes]:
    """The value of each color, 65536 r + 256 g + b, and the names of values as in `classes.txt`.

    A class has a line `name:r,g,b::`, and its value is the number of its line, from 0 on. Lines
    that begin with `#` do not count.

    Raises:
        PocketuneError: A line is of another form, or two are of one color.
    """
    colors: dict[int, int] = {}
    names: list[str] = []
    for number, line in enumerate(text.decode("utf-8-sig", "replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        levels = [int(each) for each in found.group(2, 3, 4)] if found else []
        if found is None or not found[1] or max(levels) >= _VALUES or len(names) == _VALUES:
            raise PocketuneError(
                f"{shown(name)} has no class and color in line {number}; write a line such as "
                "cat:128,0,0:: for each of at most 256 classes"
            )
        code = levels[0] << 16 | levels[1] << 8 | levels[2]
        if code in colors:
            raise PocketuneError(
                f"{shown(name)} has the color of {shown(names[colors[code]])} twice; give each "
                "class its own"
            )
        colors[code] = len(names)
        names.append(found[1])
    if not names:
        raise PocketuneError(f"{shown(name)} is empty; write a line such as cat:128,0,0::")
    return colors, "".join(f"{value}={label}\n" for value, label in enumerate(names)).encode()
