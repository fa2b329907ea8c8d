"""Outputs for photos of any size, from windows that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from pocketune.data import open_image
from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import reading_image
from pocketune.data.images.transforms import resized
from pocketune.errors import PocketuneError
from pocketune.tasks import Box, Seen

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray
    from pocketune.data import ImageDataset
    from pocketune.data.images.transforms import Pixels
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.kit.manifest import Manifest
    from pocketune.tasks import Task

Window = Literal["whole", "slide"]
"""The whole photo in one square, or squares of its shorter side that slide over it."""

OVERLAP = 0.25
_LONGEST = 64
"""Most times that a photo may be as long as it is wide, and so the most squares beside each other;
a panorama is ten times as long."""


class Windows:
    """Cuts photos into windows of a kit's size, and puts their outputs together.

    A photo is scaled so that its shorter side is the kit's size. Windows begin where a cell of the
    output does, so that their outputs are added cell by cell and divided by their number. A photo
    takes the memory of its scaled pixels and of its outputs, and a batch of windows.

    Args:
        manifest: Of the kit, whose task is dense.
        overlap: Share of a window that the next one repeats, from 0 to below 1.

    Raises:
        PocketuneError: The outputs of the task are not of pixels, or the overlap is out of range.
    """

    def __init__(self, manifest: Manifest, overlap: float = OVERLAP) -> None:
        check_window(manifest.task, "slide", overlap)
        self._size, self._batch, self._overlap = manifest.size, manifest.batch, overlap
        _, self._rows, self._columns = manifest.task.output_shape(manifest.size)

    def open(self, dataset: ImageDataset, index: int) -> tuple[Pixels, Seen]:
        """A photo at the scale of the windows, and its own size.

        Raises:
            UnreadableImage: It cannot be decoded, or is far longer than wide or the reverse.
        """
        with (
            reading_image(dataset.names[index]),
            dataset.open(index) as file,
            open_image(file) as image,
        ):
            width, height = oriented_size(image)
            if max(width, height) > _LONGEST * min(width, height):
                raise ValueError(
                    f"one side of its {width} x {height} pixels is over {_LONGEST} times as long "
                    "as the other, too much for sliding windows; crop it"
                )
            columns, rows = self._cells(width, height)
            across = round(columns * self._size / self._columns)
            down = round(rows * self._size / self._rows)
            whole = Box(0, 0, width, height)
            return resized(image, whole, across, down), Seen(width, height, whole)

    def output(self, engine: OnnxEngine, photo: Pixels, seen: Seen) -> FloatArray:
        """The output (outputs, rows, columns) for a whole photo from `open`."""
        columns, rows = self._cells(seen.width, seen.height)
        tops = _starts(rows, self._rows, self._overlap)
        starts = [*product(tops, _starts(columns, self._columns, self._overlap))]
        total: FloatArray | None = None
        count = np.zeros((rows, columns), np.float32)
        for first in range(0, len(starts), self._batch):
            some = starts[first : first + self._batch]
            outputs = engine.predict(np.stack([self._cut(photo, *start) for start in some]))
            if total is None:
                total = np.zeros((outputs.shape[1], rows, columns), np.float32)
            for output, (top, left) in zip(outputs, some, strict=True):
                down, across = slice(top, top + self._rows), slice(left, left + self._columns)
                total[:, down, across] += output
                count[down, across] += 1
        assert total is not None  # there is a window
        total /= count
        return total

    def _cells(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of the output for a whole photo."""
        shorter = min(width, height)
        columns = max(self._columns, round(self._columns * width / shorter))
        return columns, max(self._rows, round(self._rows * height / shorter))

    def _cut(self, photo: Pixels, row: int, column: int) -> Pixels:
        """The window that begins at a cell."""
        top = min(round(row * self._size / self._rows), photo.shape[0] - self._size)
        left = min(round(column * self._size / self._columns), photo.shape[1] - self._size)
        return photo[top : top + self._size, left : left + self._size]


def check_window(task: Task, window: str, overlap: float) -> None:
    """Check how photos are to be seen.

    Raises:
        PocketuneError: The window is unknown, or windows shall slide where outputs are not of
            pixels, or the overlap is out of range or given for windows that do not slide.
    """
    if window not in ("whole", "slide"):
        raise PocketuneError(f"unknown window {window!r}: choose one of whole, slide")
    if window == "slide" and not task.dense:
        raise PocketuneError(
            f"window={window!r} is for masks: this model predicts {task.noun} of whole images; "
            "leave it out"
        )
    if not 0 <= overlap < 1:
        raise PocketuneError(f"overlap={overlap} must be from 0 to below 1")
    if window == "whole" and overlap != OVERLAP:
        raise PocketuneError(
            f"overlap={overlap} is for windows that slide: give window='slide' too, or leave it out"
        )


def _starts(cells: int, window: int, overlap: float) -> Sequence[int]:
    """Where windows begin along one axis; the last one ends where the photo does."""
    step = max(1, round(window * (1 - overlap)))
    return [*range(0, cells - window, step), cells - window]
