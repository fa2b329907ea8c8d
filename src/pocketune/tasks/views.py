"""Views: what a network sees of an image, as numbers that image and mask are both cut by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ZOOM = (0.5, 2.0)
"""Limits of the random scale of a training view. This, the share and the changes of colors are
those of mmsegmentation, with which Yang et al. (CVPR 2023, table 3) train."""
LARGEST_CHANGE = 32.0, 0.5, 0.5, 0.1
"""Largest change of brightness, contrast, saturation and hue."""


class Box(NamedTuple):
    """A part of an upright image, in pixels."""

    left: float
    top: float
    width: float
    height: float


class Place(NamedTuple):
    """Pixels of a square: columns from `left` and rows from `top`, without the last ones."""

    left: int
    top: int
    right: int
    bottom: int


class Colors(NamedTuple):
    """A change of an image's colors, step by step in this order.

    Attributes:
        brightness: Added to each value of 0 to 255.
        contrast: Factor on each value.
        saturation: Factor on the saturation.
        hue: Added to the hue, in full turns of the color circle.
        contrast_last: Whether the contrast changes after saturation and hue.
    """

    brightness: float = 0.0
    contrast: float = 1.0
    saturation: float = 1.0
    hue: float = 0.0
    contrast_last: bool = False


class View(NamedTuple):
    """What a network sees of an image: a part that is resized to a square and may be mirrored.

    Attributes:
        box: The part. It may reach beyond the image; the square is filled up there.
        size: Height and width of the square, in pixels.
        mirrored: Whether left and right are exchanged.
        colors: A change of the colors; None for none.
    """

    box: Box
    size: int
    mirrored: bool = False
    colors: Colors | None = None

    def placed(self, width: int, height: int) -> tuple[Box, Place]:
        """The part of an image of this width and height in the box, and its place in the square.

        A box inside of the image is returned as it is, and fills the square.
        """
        left, across, first, end = _inside(self.box.left, self.box.width, width, self.size)
        top, down, above, below = _inside(self.box.top, self.box.height, height, self.size)
        return Box(left, top, across, down), Place(first, above, end, below)


class Seen(NamedTuple):
    """The part of an image that an output is for.

    Attributes:
        width: Width of the upright image, in pixels.
        height: Its height.
        box: The part, which may reach beyond the image.
    """

    width: int
    height: int
    box: Box


def whole_view(width: int, height: int, size: int) -> View:
    """The whole of an image in the middle of a square that is filled up around it.

    The box is larger than the image along its shorter side, by whole pixels of the square.
    """
    longer = max(width, height)
    left, across = _centered(width, size, longer)
    top, down = _centered(height, size, longer)
    return View(Box(left, top, across, down), size)


def random_square(width: int, height: int, rng: np.random.Generator) -> Box:
    """A square whose side is the image's shorter side, divided by a random scale of 0.5 to 2.

    Along an axis on which it is longer than the image, it contains the image.
    """
    side = min(width, height) / rng.uniform(*ZOOM)
    left, top = (
        rng.uniform(min(0.0, length - side), max(0.0, length - side)) for length in (width, height)
    )
    return Box(left, top, side, side)


def random_colors(rng: np.random.Generator) -> Colors:
    """Brightness, contrast, saturation and hue, each changed with probability 1/2."""
    changes = [rng.uniform(-most, most) * (rng.random() < 0.5) for most in LARGEST_CHANGE]
    brightness, contrast, saturation, hue = changes
    return Colors(brightness, 1 + contrast, 1 + saturation, hue, bool(rng.random() < 0.5))


def _inside(start: float, length: float, image: int, size: int) -> tuple[float, float, int, int]:
    """Start and length of the part of a box inside an image, and its pixels, along one axis."""
    end = start + length
    low, high = max(start, 0.0), min(end, float(image))
    if low == start and end <= image * (1 + 1e-6):
        return start, length, 0, size
    first = min(round((low - start) * size / length), size - 1)
    last = max(round((high - start) * size / length), first + 1)
    return low, high - low, first, last


def _centered(length: int, size: int, longer: int) -> tuple[float, float]:
    """Start and length of a box whose middle an image fills with whole pixels, along one axis."""
    pixels = max(1, round(length * size / longer))
    return -((size - pixels) // 2) * length / pixels, size * length / pixels
