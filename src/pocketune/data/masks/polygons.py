"""Which pixels polygons and run-length codes cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]

_CODE, _MORE, _SIGN = 0x1F, 0x20, 0x10  # of a character of a compressed code
_BITS, _FIRST = 5, ord("0")
_LONGEST = 32  # bits of a run


def fill_polygon(pixels: Pixels, corners: npt.NDArray[np.floating], value: int) -> None:
    """Give the pixels (height, width) whose centers a polygon contains this value, in place.

    The center of the pixel in row r and column c is at x = c + 1/2, y = r + 1/2. Where the polygon
    crosses itself, a point is inside if a ray from it crosses an odd number of edges.

    Args:
        pixels: What is drawn on.
        corners: (n, 2), x and y of each; also beyond the image.
        value: The value.
    """
    height, width = pixels.shape
    start = corners.astype(np.float64)
    end = np.roll(start, -1, axis=0)
    ys = np.stack([start[:, 1], end[:, 1]])
    # Rows whose centers are at or below the upper end of an edge, and above the lower one.
    first, last = np.ceil(np.stack([ys.min(0), ys.max(0)]) - 0.5).clip(0, height).astype(np.intp)
    counts = last - first
    if not counts.any():
        return
    edges = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(edges)) - np.repeat(counts.cumsum() - counts - first, counts)
    slopes = (end[edges, 0] - start[edges, 0]) / (end[edges, 1] - start[edges, 1])
    crossed = start[edges, 0] + (rows + 0.5 - start[edges, 1]) * slopes
    columns = np.ceil(crossed - 0.5).clip(0, width).astype(np.intp)
    top, bottom, left, right = rows.min(), rows.max() + 1, columns.min(), columns.max()
    inside = np.zeros((bottom - top, right - left + 1), bool)
    np.logical_xor.at(inside, (rows - top, columns - left), True)
    np.logical_xor.accumulate(inside, axis=1, out=inside)
    pixels[top:bottom, left:right][inside[:, :-1]] = value


def area(corners: npt.NDArray[np.floating]) -> float:
    """The area of a polygon (n, 2), in pixels."""
    x, y = corners.astype(np.float64).T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def fill_runs(pixels: Pixels, runs: npt.NDArray[np.integer], value: int) -> None:
    """Give the pixels (height, width) of a run-length code this value, in place.

    Args:
        pixels: What is drawn on.
        runs: Lengths of runs of pixels that are outside and inside in turn, column by column.
        value: The value.

    Raises:
        ValueError: The runs are not as long as all pixels together.
    """
    height, width = pixels.shape
    if runs.sum() != pixels.size:
        raise ValueError(f"its run-length code is not of {width} x {height} pixels")
    inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height)
    pixels[inside.T] = value


def parse_runs(code: str) -> list[int]:
    """The runs of a compressed code, as COCO's tools write it.

    Each run but the first three is stored as the difference to the run before the last one, in
    characters of five bits, the lowest first. A sixth bit says that there is another character.

    Raises:
        ValueError: The text is not such a code.
    """
    runs: list[int] = []
    value, shift = 0, 0
    for character in code:
        bits = ord(character) - _FIRST
        if not 0 <= bits < 2 * _MORE or shift > _LONGEST:
            raise ValueError("its run-length code is damaged")
        value |= (bits & _CODE) << shift
        shift += _BITS
        if not bits & _MORE:
            value -= (1 << shift) if bits & _SIGN else 0
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value, shift = 0, 0
    if shift:
        raise ValueError("its run-length code is damaged")
    return runs


def check_runs(runs: Sequence[int]) -> npt.NDArray[np.uint32]:
    """Runs as an array.

    Raises:
        ValueError: A run is not a whole number of pixels.
    """
    if not all(isinstance(run, int) and 0 <= run < 2**32 for run in runs):
        raise ValueError("its run-length code is damaged")
    return np.array(runs, np.uint32)
