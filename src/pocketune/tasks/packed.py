"""Masks in few bytes: the runs of equal pixels, row after row.

A mask of areas has few runs: one of 12 megapixels takes some hundred kB. Several batches of masks
wait while an evaluation compares one.
"""

from __future__ import annotations

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
            starts = np.concatenate([*_starts(pixels)])
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
    pixels, runs = mask.reshape(-1), 0
    for start in range(0, pixels.size, _BLOCK):
        block = pixels[max(0, start - 1) : start + _BLOCK]
        runs += int(np.count_nonzero(block[1:] != block[:-1]))
    return min(pixels.size, _RUN_BYTES * (runs + 1))


def unpacking_bytes(pixels: int, packed: int) -> int:
    """Bytes for unpacking a mask: its pixels, and the lengths of its runs in 64 bits."""
    return pixels + 8 * packed // _RUN_BYTES


def _starts(pixels: NDArray[np.uint8]) -> list[NDArray[np.uint32]]:
    """Where runs begin, block by block."""
    found = [np.zeros(1, np.uint32)]
    for start in range(0, pixels.size, _BLOCK):
        first = max(0, start - 1)
        block = pixels[first : start + _BLOCK]
        found.append((np.flatnonzero(block[1:] != block[:-1]) + first + 1).astype(np.uint32))
    return found
