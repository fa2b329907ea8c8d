"""Cut the square that a network sees out of an image.

A view is first drawn, which needs only the image's size from its header. It is then applied to the
image and, by the task, to its label. The image is decoded no larger than the view needs, and its
box is resized once, with antialiasing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image

from pocketune.data.images import decode, oriented_size, turn_for
from pocketune.tasks import Box, View

AREA = (0.22, 1.0)  # of the image; as in TinyTL (arXiv 2007.11622) and MobileTL (arXiv 2212.11246)
ASPECT = (3 / 4, 4 / 3)  # width to height
ATTEMPTS = 10
CENTER = 0.875  # of the shorter side

Pixels = npt.NDArray[np.uint8]


def random_box(width: int, height: int, rng: np.random.Generator) -> Box:
    """A box of random area, aspect ratio and place in the image.

    The rule is that of Inception and torchvision: ten draws, and if none fits into the image, the
    largest centered box of an allowed aspect ratio.
    """
    for _ in range(ATTEMPTS):
        area = width * height * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, top = rng.integers(width - across + 1), rng.integers(height - down + 1)
            return Box(int(left), int(top), across, down)
    aspect = min(max(width / height, ASPECT[0]), ASPECT[1])
    return _centered(width, height, min(width, height * aspect), min(height, width / aspect))


def center_box(width: int, height: int, size: int) -> Box:
    """The square that remains of an image resized to ``ceil(size / 0.875)`` and center-cropped."""
    side = min(width, height) * size / math.ceil(size / CENTER)
    return _centered(width, height, side, side)


def random_view(width: int, height: int, size: int, rng: np.random.Generator) -> View:
    """A random part of an image of this width and height, mirrored with probability 1/2."""
    return View(random_box(width, height, rng), size, mirrored=rng.random() < 0.5)


def center_view(width: int, height: int, size: int) -> View:
    """The middle of an image of this width and height."""
    return View(center_box(width, height, size), size)


def apply(image: Image.Image, view: View) -> Pixels:
    """Cut a view out of an image.

    Args:
        image: From ``open_image``, not decoded yet, or any Pillow image.
        view: The view; its box is in pixels of the upright image.

    Returns:
        uint8 (size, size, 3), red, green, blue.
    """
    pixels = crop(image, view.box, view.size)
    return pixels[:, ::-1] if view.mirrored else pixels


def crop(image: Image.Image, box: Box, size: int) -> Pixels:
    """Cut ``box`` out of an image and resize it.

    Args:
        image: From ``open_image``, not decoded yet, or any Pillow image.
        box: The box, in pixels of the upright image.
        size: Height and width of the result, in pixels.

    Returns:
        uint8 (size, size, 3), red, green, blue.
    """
    width, height = oriented_size(image)
    with turn_for(image):
        rgb = decode(image, scale=size / min(box.width, box.height))
        across, down = rgb.width / width, rgb.height / height
        # Pillow refuses a box whose edge rounding has pushed a millionth of a pixel out.
        right = min((box.left + box.width) * across, rgb.width)
        bottom = min((box.top + box.height) * down, rgb.height)
        part = (box.left * across, box.top * down, right, bottom)
        return np.asarray(rgb.resize((size, size), Image.Resampling.BILINEAR, box=part))


def center_crop(image: Image.Image, size: int) -> Pixels:
    """The middle of an image: uint8 (size, size, 3)."""
    return apply(image, center_view(*oriented_size(image), size))


def _centered(width: int, height: int, across: float, down: float) -> Box:
    return Box((width - across) / 2, (height - down) / 2, across, down)
