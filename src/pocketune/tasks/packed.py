"""Masks in few bytes: the runs of equal pixels, row after row.

A mask of areas has few runs: one of 12 megapixels takes some hundred kB. Several batches of masks
wait while an evaluation compares one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 18
_RUN_BYTES = 5  # a length and a class


class PackedMask:
    """A mask (height, width) of classes, packed where that takes less.

    Attributes:
        shape: Height and width.
    """

    __slots__ = ("_lengths", "_values", "shape")

    def __init__(self, mask: NDArray[np.uint8]) -> None:
        self.shape: tuple[int, int] = (mask.shape[0], mask.shape[1])
        pixels, self._lengths = np.ascontiguousarray(mask).reshape(-1), np.zeros(0, np.uint32)
        self._values = pixels
        if packed_bytes(mask) < pixels.size:
            later = (
                (first + np.flatnonzero(each)).astype(np.uint32) for first, each in _changes(pixels)
            )
            starts = np.concatenate([np.zeros(1, np.uint32), *later])
            self._values = pixels[starts]
            self._lengths = np.diff(starts, append=np.uint32(pixels.size))

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self._values.nbytes + self._lengths.nbytes

    def unpacked(self) -> NDArray[np.uint8]:
        """The mask (height, width)."""
        whole = np.repeat(self._values, self._lengths) if len(self._lengths) else self._values
        return whole.reshape(self.shape)


def packed_bytes(mask: NDArray[np.uint8]) -> int:
    """Bytes that a mask takes packed."""
    runs = 1 + sum(int(np.count_nonzero(each)) for _, each in _changes(mask.reshape(-1)))
    return min(mask.size, _RUN_BYTES * runs)


def unpacking_bytes(pixels: int, packed: int) -> int:
    """Bytes for unpacking a mask: its pixels, and the lengths of its runs in 64 bits."""
    return pixels + 8 * packed // _RUN_BYTES


def _changes(pixels: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Whether pixels differ from those before them, block by block from a first position."""
    for first in range(1, pixels.size, _BLOCK):
        block = pixels[first - 1 : first + _BLOCK]
        yield first, block[1:] != block[:-1]
