"""Cut the square that a network sees out of an image.

A view is first drawn, which needs only the image's size from its header. It is then applied to the
image and, by the task, to its label. The image is decoded no larger than the view needs, and its
box is resized once, with antialiasing. A box that reaches beyond the image gives a square that is
filled up.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from PIL import Image

from pocketune.data.images.cost import SMALL, decoding_bytes, turn_for
from pocketune.data.images.decode import decode, draft, oriented_size, release
from pocketune.data.images.pillow_headers import header_of
from pocketune.data.images.strips import is_better_in_strips, resized_in_strips
from pocketune.tasks import Box, View
from pocketune.tasks.views import Colors

AREA = (0.22, 1.0)  # of the image; as in TinyTL (arXiv 2007.11622) and MobileTL (arXiv 2212.11246)
ASPECT = (3 / 4, 4 / 3)  # width to height
ATTEMPTS = 10
CENTER = 0.875  # of the shorter side
FILL = (124, 116, 104)  # the mean of ImageNet; near 0 for a network once it has normalized pixels

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
    """The square that remains of an image resized to `ceil(size / 0.875)` and center-cropped."""
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
        image: From `open_image`, not decoded yet, or any Pillow image.
        view: The view; its box is in pixels of the upright image.

    Returns:
        uint8 (size, size, 3), red, green, blue; the mean of ImageNet where the box is beyond the
        image.
    """
    box, place = view.placed(*oriented_size(image))
    across, down = place.right - place.left, place.bottom - place.top
    pixels = resized(image, box, across, down)
    if view.colors is not None:
        pixels = recolored(pixels, view.colors)
    if (across, down) != (view.size, view.size):
        square = np.empty((view.size, view.size, 3), np.uint8)
        square[:] = FILL
        square[place.top : place.bottom, place.left : place.right] = pixels
        pixels = square
    return pixels[:, ::-1] if view.mirrored else pixels


def resized(image: Image.Image, box: Box, columns: int, rows: int) -> Pixels:
    """A part of an image, in pixels of the upright image, as uint8 (rows, columns, 3).

    A large image is decoded in strips, with the same result. The pixels of an image from
    `open_image` are freed at the end, before the next large one has its turn.
    """
    width, height = oriented_size(image)
    scale = max(columns / box.width, rows / box.height)
    with turn_for(decoding_bytes(header_of(image), scale, columns)):
        draft(image, scale)
        decoded = oriented_size(image)
        across, down = decoded[0] / width, decoded[1] / height
        # Pillow refuses a box whose edge rounding has pushed a millionth of a pixel out.
        right = min((box.left + box.width) * across, decoded[0])
        bottom = min((box.top + box.height) * down, decoded[1])
        part = (box.left * across, box.top * down, right, bottom)
        try:
            if math.prod(decoded) > SMALL and is_better_in_strips(image):
                return resized_in_strips(image, part, columns, rows)
            return np.asarray(
                decode(image).resize((columns, rows), Image.Resampling.BILINEAR, box=part)
            )
        finally:
            release(image)


def recolored(pixels: Pixels, colors: Colors) -> Pixels:
    """Pixels with another brightness, contrast, saturation and hue, each cut off at 0 and 255."""
    brightness, contrast, saturation, hue, contrast_last = colors
    values = np.arange(256)
    light = values + brightness
    if contrast != 1 and not contrast_last:
        light = light.clip(0, 255) * contrast
    image = Image.fromarray(pixels).point(_table(light) * 3)
    if saturation != 1 or hue:
        turned = ((values + round(hue * 256)) % 256).tolist()
        hsv = image.convert("HSV").point([*turned, *_table(values * saturation), *values.tolist()])
        image = hsv.convert("RGB")
    if contrast != 1 and contrast_last:
        image = image.point(_table(values * contrast) * 3)
    return np.asarray(image)


def _table(values: npt.NDArray[np.floating | np.integer]) -> list[int]:
    """What Pillow replaces each value of 0 to 255 by."""
    table: list[int] = values.round().clip(0, 255).astype(int).tolist()
    return table


def center_crop(image: Image.Image, size: int) -> Pixels:
    """The middle of an image: uint8 (size, size, 3)."""
    return apply(image, center_view(*oriented_size(image), size))


def _centered(width: int, height: int, across: float, down: float) -> Box:
    return Box((width - across) / 2, (height - down) / 2, across, down)
