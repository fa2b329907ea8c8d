"""The outlines of objects in images, from which masks are drawn.

A mask is drawn each time it is read. Only the outlines of the objects are in memory.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from pocketune.arrays import distinct
from pocketune.data.images.cost import MASK_BYTES, MAX_WORKING_BYTES, turn_for
from pocketune.data.masks.polygons import Pixels
from pocketune.data.masks.shapes import Corners, Shapes
from pocketune.data.names import Names

BACKGROUND = "background"
"""The class of the pixels without an object."""
_PIXEL_BYTES = 8  # what limits the size of other gray images


class Outlines:
    """Images and the objects in them.

    Args:
        files: The name of each image.
        sizes: The height and width of each.
        shapes: The outlines of all objects, with the numbers of their images and categories.
        labels: The name of each category.

    Attributes:
        images: The names of the images, sorted.
        used: The names of the categories that have an object.
    """

    def __init__(
        self,
        files: Sequence[str],
        sizes: Sequence[tuple[int, int]],
        shapes: Shapes,
        labels: Sequence[str],
    ) -> None:
        self._shapes, self._labels = shapes, tuple(labels)
        ranks = sorted(range(len(files)), key=files.__getitem__)
        self.images = Names(files[each] for each in ranks)
        self._sizes = np.array([sizes[each] for each in ranks]).reshape(-1, 2)
        self._order = shapes.order()
        ordered = shapes.images[self._order]
        self._starts = np.searchsorted(ordered, ranks)
        self._ends = np.searchsorted(ordered, ranks, side="right")
        self.used = {self._labels[each] for each in distinct(shapes.categories).tolist()}

    @contextmanager
    def open(self, image: str, values: Mapping[str, int]) -> Iterator[IO[bytes]]:
        """The mask of an image as a file, in Netpbm's gray format.

        Larger objects are drawn first, so that smaller ones within them are seen. Pixels without an
        object are 0.

        Args:
            image: One of `images`.
            values: The value of each category.

        Raises:
            FileNotFoundError: There is no such image.
            ValueError: The image is too large, or a run-length code is not of its size.
        """
        index = self.images.find(image)
        if index is None:
            raise FileNotFoundError(image)
        height, width = self._sizes[index].tolist()
        shapes = self._order[self._starts[index] : self._ends[index]].tolist()
        with drawing(height, width) as canvas:
            # A category without an object may have no value.
            numbers = [values.get(each, 0) for each in self._labels]
            self._shapes.fill(canvas.pixels, shapes, numbers)
            mask = canvas.done()
        with io.BytesIO(mask) as file:
            yield file


class Canvas:
    """A mask (height, width) of zeros that is drawn on."""

    def __init__(self, height: int, width: int) -> None:
        self.pixels: Pixels = np.zeros((height, width), np.uint8)

    def done(self) -> bytes:
        """The mask as a file, in Netpbm's gray format; the pixels are dropped."""
        height, width = self.pixels.shape
        mask = b"".join([f"P5 {width} {height} 255\n".encode(), self.pixels.data])
        del self.pixels
        return mask


@contextmanager
def drawing(height: int, width: int) -> Iterator[Canvas]:
    """A new mask, once there is memory for it.

    Raises:
        ValueError: It is too large.
    """
    if height * width * _PIXEL_BYTES > MAX_WORKING_BYTES:
        raise ValueError(f"its {width} x {height} pixels are too many; make the image smaller")
    with turn_for(MASK_BYTES * height * width):
        yield Canvas(height, width)


def is_side(value: Any) -> bool:
    """Whether a value is a number of pixels; some programs write it as 640.0."""
    return isinstance(value, (int, float)) and 0 < value < 2**31 and value == int(value)


def is_label(value: Any) -> bool:
    """Whether a value is the name of a category: a line of text."""
    return isinstance(value, str) and bool(value.strip()) and len(value.splitlines()) == 1


def corners_of(numbers: Any) -> Corners:
    """The corners (n, 2) of a polygon, from x and y of each in turn.

    Raises:
        ValueError, TypeError: They are none.
    """
    corners = np.array(numbers, np.float32)
    if corners.ndim != 1 or len(corners) % 2 or not all(map(math.isfinite, corners.tolist())):
        raise ValueError("a polygon is not a list of x and y")
    return corners.reshape(-1, 2)
