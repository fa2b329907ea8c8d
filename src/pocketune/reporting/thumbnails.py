"""Small pictures of photos, inside of a page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from PIL import Image

from pocketune.data import UnreadableImage, center_crop, open_image
from pocketune.data.images.opening import reading_image

if TYPE_CHECKING:
    from pocketune.data import ImageDataset

SIDE = 144
QUALITY = 72


def thumbnail(dataset: ImageDataset, index: int) -> str | None:
    """A photo as a small square JPEG in a `data:` address; None if it cannot be read.

    It shows the middle of the photo, as the network sees it in an evaluation. It has no metadata,
    so a page does not say where a photo was taken.
    """
    name = dataset.names[index]
    try:
        with reading_image(name), dataset.open(index) as file, open_image(file) as image:
            square = Image.fromarray(center_crop(image, SIDE))
    except UnreadableImage:
        return None
    return address(square, "JPEG", quality=QUALITY)


def address(image: Image.Image, kind: str, **options: int) -> str:
    """A picture as a file of this format in a `data:` address."""
    stream = io.BytesIO()
    image.save(stream, kind, optimize=True, **options)
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    return f"data:image/{kind.lower()};base64,{data}"
