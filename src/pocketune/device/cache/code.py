"""Features in few bits: codes with a scale and an offset for each block of values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray

BLOCK = 128
"""Values that share a scale and an offset, which add half a bit to each value."""
EXACT = 32
_TYPES = {8: np.uint8, 16: np.uint16}

Rows = NDArray[np.uint8]


@dataclass(frozen=True)
class Code:
    """How the features of one image are written as bytes.

    A block of values lies evenly between its smallest and its largest one: the error of a value is
    at most a 510th of that range with 8 bits, and a 131070th with 16.

    Attributes:
        shape: Shape of one image's features.
        bits: Bits of a value: 8, 16, or 32 for float32 unchanged.
    """

    shape: tuple[int, ...]
    bits: int

    @cached_property
    def values(self) -> int:
        """Values of one image."""
        return math.prod(self.shape)

    @cached_property
    def size(self) -> int:
        """Bytes of one image."""
        if self.bits == EXACT:
            return 4 * self.values
        return self._blocks * (8 + BLOCK * self.bits // 8)

    @cached_property
    def _blocks(self) -> int:
        return math.ceil(self.values / BLOCK)

    def encode(self, features: FloatArray) -> bytes:
        """The bytes of one image's features. What is not finite stays so for its whole block."""
        if self.bits == EXACT:
            return features.astype(np.float32, copy=False).tobytes()
        flat = features.reshape(-1)
        blocks = np.pad(flat, (0, self._blocks * BLOCK - len(flat)), mode="edge")
        blocks = blocks.reshape(self._blocks, BLOCK)
        levels = np.float32(2**self.bits - 1)
        with np.errstate(invalid="ignore", over="ignore"):
            low = blocks.min(axis=1, keepdims=True)
            step = (blocks.max(axis=1, keepdims=True) - low) / levels
            codes = np.rint((blocks - low) / np.where(step > 0, step, np.float32(1)))
            codes = codes.clip(0, levels).astype(_TYPES[self.bits])
        content: bytes = np.hstack([low, step]).tobytes() + codes.tobytes()
        return content

    def features(self, images: FloatArray) -> Features:
        """The encoded features of several images (N, ...)."""
        rows = [np.frombuffer(self.encode(image), np.uint8) for image in images]
        return Features(self, np.stack(rows))

    def decode(self, rows: Rows) -> FloatArray:
        """Features (N, ...) from the bytes (N, size) of N images."""
        if self.bits == EXACT:
            return np.ascontiguousarray(rows).view(np.float32).reshape(len(rows), *self.shape)
        blocks = self._blocks
        features = np.empty((len(rows), self.values), np.float32)
        with np.errstate(invalid="ignore"):
            for row, into in zip(rows, features, strict=True):  # temporaries of one image at a time
                ranges = row[: 8 * blocks].copy().view(np.float32).reshape(blocks, 2)
                codes = row[8 * blocks :].copy().view(_TYPES[self.bits])
                values = codes.astype(np.float32).reshape(blocks, BLOCK)
                values *= ranges[:, 1:]
                values += ranges[:, :1]
                into[:] = values.reshape(-1)[: self.values]
        return features.reshape(len(rows), *self.shape)


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded features of several images, which an engine takes in place of their pixels.

    Attributes:
        code: How they are written.
        rows: uint8 (N, size), the bytes of each image.
    """

    code: Code
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> Features:
        return Features(self.code, self.rows[part])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (N, ...) of the decoded features."""
        return (len(self.rows), *self.code.shape)

    def decoded(self) -> FloatArray:
        """The features (N, ...)."""
        return self.code.decode(self.rows)
