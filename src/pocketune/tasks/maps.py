"""Maps of logits: resized to the pixels of an image, and compared with the classes there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.tasks.packed import PackedMask
from pocketune.tasks.views import Box, Seen

IGNORED = 255
"""The class of pixels that do not count."""
STRIP = 1 << 18
"""Logits of a strip of rows, which are resized at once: an image of any size takes this much."""

ClassMap = NDArray[np.uint8]


class Truth:
    """What the output for an image is compared with; it holds the mask packed.

    Args:
        mask: uint8 (height, width), the class of each pixel of the image; 255 does not count.
        box: The part of the image that the output is for.
    """

    def __init__(self, mask: ClassMap, box: Box) -> None:
        self._packed, self.box = PackedMask(mask), box

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the mask."""
        return self._packed.shape

    def mask(self) -> ClassMap:
        """The mask, unpacked each time."""
        return self._packed.unpacked()


class Strip(NamedTuple):
    """Rows of an image.

    Attributes:
        rows: Which ones.
        logits: (classes, rows, width), as many as the image has pixels there.
    """

    rows: slice
    logits: FloatArray


def strips(output: FloatArray, seen: Seen) -> Iterator[Strip]:
    """The logits of an image's pixels, strip by strip.

    They are interpolated linearly between the centers of the output's cells, as by PyTorch's
    `interpolate` with `align_corners=False`.

    Args:
        output: (classes, height, width), logits of the part `seen.box`.
        seen: The image.
    """
    classes, down, across = output.shape
    columns = interpolation(seen.width, seen.box.left, seen.box.width, across).T
    every = interpolation(seen.height, seen.box.top, seen.box.height, down)
    count = max(1, STRIP // (classes * seen.width))
    for start in range(0, seen.height, count):
        rows = slice(start, min(start + count, seen.height))
        yield Strip(rows, (every[rows] @ output) @ columns)


def class_map(output: FloatArray, seen: Seen) -> ClassMap:
    """The class (height, width) of each pixel of an image: that of the largest logit."""
    found = np.empty((seen.height, seen.width), np.uint8)
    for strip in strips(output, seen):
        found[strip.rows] = _largest(strip.logits)[0]
    return found


def cells_inside(output: FloatArray, seen: Seen) -> FloatArray:
    """The cells (classes, h, w) of an output whose centers are within the image.

    Of an image that is narrower than a cell, they are the nearest ones.
    """
    _, down, across = output.shape
    rows = _inside(_centers(down, seen.box.top, seen.box.height), seen.height)
    columns = _inside(_centers(across, seen.box.left, seen.box.width), seen.width)
    return output[:, rows[:, None], columns]


def _inside(centers: NDArray[np.float64], length: int) -> NDArray[np.int64]:
    """The positions of the centers in pixels from 0 to `length`, or of the nearest."""
    distances = np.maximum(-centers, centers - length)
    inside = distances < 0
    return np.flatnonzero(inside if inside.any() else distances == distances.min())


def _centers(cells: int, start: float, length: float) -> NDArray[np.float64]:
    """The centers of cells in pixels of the image, along one axis."""
    centers: NDArray[np.float64] = start + (np.arange(cells) + 0.5) * length / cells
    return centers


def count_values(mask: ClassMap) -> NDArray[np.int64]:
    """The number of pixels (256,) of each value; numpy's own count takes eight bytes for each."""
    counts, flat = np.zeros(IGNORED + 1, np.int64), mask.reshape(-1)
    for start in range(0, len(flat), STRIP):
        counts += np.bincount(flat[start : start + STRIP], minlength=IGNORED + 1)
    return counts


class Comparison(NamedTuple):
    """An image's pixels by their class and their predicted class.

    Attributes:
        confusion: int64 (classes, classes), the number of pixels by class (row) and predicted class
            (column), without ignored ones.
        loss: The sum of their cross-entropies.
    """

    confusion: NDArray[np.int64]
    loss: float

    @property
    def pixels(self) -> int:
        """Number of pixels that count."""
        return int(self.confusion.sum())


def compare(output: FloatArray, label: Truth | ClassMap) -> Comparison:
    """Compare logits (classes, h, w) with the class of each pixel.

    A mask alone is compared with an output for the whole of it.
    """
    mask, box = (label.mask(), label.box) if isinstance(label, Truth) else (label, None)
    height, width = mask.shape
    seen = Seen(width, height, box or Box(0, 0, width, height))
    classes = len(output)
    confusion, loss = np.zeros(classes * classes, np.int64), 0.0
    for rows, logits in strips(output, seen):
        counts = mask[rows] != IGNORED
        if not counts.any():
            continue
        truth = np.where(counts, mask[rows], 0).astype(np.intp)
        guess, largest = _largest(logits)
        pairs = (truth * classes + guess)[counts]
        confusion += np.bincount(pairs, minlength=classes * classes)
        logits -= largest
        own = np.take_along_axis(logits, truth[None], axis=0)[0]
        total = np.log(np.exp(logits, out=logits).sum(axis=0))
        loss += float((total - own)[counts].sum(dtype=np.float64))
    return Comparison(confusion.reshape(classes, classes), loss)


def _largest(logits: FloatArray) -> tuple[ClassMap, FloatArray]:
    """The class of the largest logit (H, W) and this logit; one class at a time is faster than
    numpy's own search along the first axis.
    """
    found, largest = np.zeros(logits.shape[1:], np.uint8), logits[0].copy()
    for number, each in enumerate(logits[1:], 1):
        np.copyto(found, number, where=each > largest)
        np.maximum(largest, each, out=largest)
    return found, largest


def interpolation(pixels: int, start: float, length: float, cells: int) -> FloatArray:
    """The weights (pixels, cells) of linear interpolation along one axis."""
    centers = (np.arange(pixels) + 0.5 - start) * (cells / length) - 0.5
    position = centers.clip(0, cells - 1)
    low = np.minimum(position.astype(np.intp), max(0, cells - 2))
    weights = np.zeros((pixels, cells), np.float32)
    rows = np.arange(pixels)
    weights[rows, np.minimum(low + 1, cells - 1)] = position - low
    weights[rows, low] += 1 - (position - low)
    return weights
