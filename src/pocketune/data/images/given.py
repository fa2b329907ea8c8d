"""Images that a program gives: of Pillow, as arrays, or as the bytes of a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile

from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import open_image, reading_image
from pocketune.data.images.transforms import Pixels, apply, center_view
from pocketune.errors import PocketuneError
from pocketune.tasks import Seen, Task

GivenImage = Image.Image | npt.NDArray[np.uint8] | bytes | bytearray | memoryview
"""An image of Pillow; uint8 (height, width, 3), red, green, blue, or (height, width), gray; or the
bytes of an image file."""


def evaluated(image: GivenImage, task: Task, size: int, name: str = "") -> tuple[Pixels, Seen]:
    """The square (size, size, 3) of an image that a network sees in an evaluation.

    Args:
        image: The image; it is not changed.
        task: The task, which may choose the part that is seen.
        size: Height and width of the square, in pixels.
        name: What errors call the image.

    Raises:
        UnreadableImage: The image is damaged, too large or empty.
        PocketuneError: It is of another type or shape.
    """
    with reading_image(name or "the image"), _opened(image) as opened:
        width, height = oriented_size(opened)
        if not width or not height:
            raise ValueError("it has no pixels")
        view = task.evaluation_view(width, height, size) or center_view(width, height, size)
        return apply(opened, view), Seen(width, height, view.box)


@contextmanager
def _opened(image: Any) -> Iterator[Image.Image]:
    """The image for `apply`, which closes an image of a file: the program keeps its own."""
    if isinstance(image, Image.Image):
        yield image.copy() if isinstance(image, ImageFile.ImageFile) else image
    elif isinstance(image, (bytes, bytearray, memoryview)):
        with io.BytesIO(image) as file, open_image(file) as opened:
            yield opened
    elif isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or (image.ndim != 2 and image.shape[2:] != (3,)):
            raise PocketuneError(
                f"an array of {image.dtype} {image.shape} is not an image: give uint8 (height, "
                "width, 3), or (height, width) for gray"
            )
        if not image.size:
            raise ValueError("it has no pixels")
        yield Image.fromarray(np.ascontiguousarray(image))
    else:
        raise PocketuneError(
            f"{type(image).__name__} is not an image: give an image of Pillow, an array, or the "
            "bytes of an image file"
        )
