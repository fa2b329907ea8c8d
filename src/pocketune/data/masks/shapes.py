"""The outlines of many objects, in little memory, drawn image by image."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pocketune.data.masks.polygons import Pixels, area, fill_polygon, fill_runs
from pocketune.data.names import Indices

Corners = npt.NDArray[np.float32]
Runs = npt.NDArray[np.uint32]


class Shapes:
    """Polygons and run-length codes, with the image and the category of each.

    A corner takes eight bytes, a run four, and a shape about forty.
    """

    def __init__(self) -> None:
        self._images, self._categories = array("Q"), array("Q")
        self._areas, self._coded = array("d"), bytearray()
        self._starts, self._ends = array("Q"), array("Q")
        self._corners, self._runs = array("f"), array("I")

    def add_polygons(self, image: int, category: int, polygons: Sequence[Corners]) -> None:
        """An object that covers what any of these polygons (n, 2) contains."""
        total = sum(map(area, polygons))
        for corners in polygons:
            start = len(self._corners)
            self._corners.frombytes(corners.astype(np.float32).tobytes())
            self._add(image, category, total, start, len(self._corners), coded=False)

    def add_runs(self, image: int, category: int, runs: Runs) -> None:
        """An object that covers every second run of pixels; see `fill_runs`."""
        start = len(self._runs)
        self._runs.frombytes(runs.astype(np.uint32).tobytes())
        self._add(image, category, float(runs[1::2].sum()), start, len(self._runs), coded=True)

    def _add(
        self, image: int, category: int, size: float, start: int, end: int, *, coded: bool
    ) -> None:
        self._images.append(image)
        self._categories.append(category)
        self._areas.append(size)
        self._coded.append(coded)
        self._starts.append(start)
        self._ends.append(end)

    @property
    def images(self) -> Indices:
        """The image (n,) of each."""
        return np.array(self._images, np.int64)

    @property
    def categories(self) -> Indices:
        """The category (n,) of each."""
        return np.array(self._categories, np.int64)

    def order(self) -> Indices:
        """All shapes, image by image; those of larger objects come first."""
        return np.lexsort((-np.array(self._areas), self.images))

    def fill(self, pixels: Pixels, shapes: Sequence[int], values: Sequence[int]) -> None:
        """Draw shapes one over the other.

        Args:
            pixels: The pixels (height, width) that they are drawn on, in place.
            shapes: The numbers of the shapes.
            values: The value of each category.

        Raises:
            ValueError: A run-length code is not of so many pixels.
        """
        for number in shapes:
            value = values[self._categories[number]]
            part = slice(self._starts[number], self._ends[number])
            if self._coded[number]:
                fill_runs(pixels, np.array(self._runs[part], np.uint32), value)
            else:
                fill_polygon(pixels, np.array(self._corners[part]).reshape(-1, 2), value)
