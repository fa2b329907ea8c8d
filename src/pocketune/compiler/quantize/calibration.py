"""Images that the ranges of a quantized frozen part are measured on, and its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.errors import PocketuneError

RANGES = 32
"""Images whose activations give the ranges; more images change them little."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """A few dozen to a few hundred images, and their classes where they are known.

    One half gives the ranges of activations and the centroids of classes. The other half is held
    out to measure errors on.

    Attributes:
        images: uint8 (N, S, S, 3), N at least 2, of the size that the kit is made for.
        labels: (N,) class numbers; without them the change of accuracy is not measured.

    Raises:
        PocketuneError: The arrays have other types or shapes.

    Example:
        >>> Calibration(np.zeros((4, 32, 32, 3), np.uint8)).ranges.shape
        (2, 32, 32, 3)
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for name in ("images", "labels"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name)))
        shape, dtype = self.images.shape, self.images.dtype
        if len(shape) != 4 or shape[3] != 3 or dtype != np.uint8 or shape[0] < 2:
            raise PocketuneError(
                "calibration images must be uint8 (N, S, S, 3) with N of at least 2, not "
                f"{dtype} {shape}"
            )
        if self.labels is not None and self.labels.shape != shape[:1]:
            raise PocketuneError(
                f"calibration needs a label for each image: {shape[0]} images have labels of "
                f"shape {self.labels.shape}"
            )

    @property
    def fitted(self) -> NDArray[np.intp]:
        """Indices of the half that ranges and centroids come from: every other of each class."""
        return self._by_class[::2]

    @property
    def held_out(self) -> NDArray[np.intp]:
        """Indices of the half that errors are measured on."""
        return self._by_class[1::2]

    @property
    def ranges(self) -> NDArray[np.uint8]:
        """The images that the ranges of activations are taken from."""
        return self.spread(RANGES)

    def spread(self, most: int) -> NDArray[np.uint8]:
        """At most so many images of the fitted half, spread over the classes."""
        spread = np.linspace(0, len(self.fitted) - 1, min(most, len(self.fitted)))
        chosen: NDArray[np.uint8] = self.images[self.fitted[spread.round().astype(int)]]
        return chosen

    @property
    def _by_class(self) -> NDArray[np.intp]:
        if self.labels is None:
            return np.arange(len(self.images))
        return np.argsort(self.labels, kind="stable")
