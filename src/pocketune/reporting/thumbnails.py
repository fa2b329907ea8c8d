"""Small pictures of photos, inside of a page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from PIL import Image

from pocketune.data import UnreadableImage, center_crop, open_image
from pocketune.data.images import reading_image

if TYPE_CHECKING:
    from pocketune.data import ImageDataset

SIDE = 144
QUALITY = 72


def thumbnail(dataset: ImageDataset, index: int, side: int = SIDE) -> str | None:
    """A photo as a small square JPEG in a ``data:`` address; None if it cannot be read.

    It shows the middle of the photo, as the network sees it in an evaluation. It has no metadata,
    so a page does not say where a photo was taken.
    """
    name = dataset.names[index]
    try:
        with reading_image(name), dataset.open(index) as file, open_image(file) as image:
            square = Image.fromarray(center_crop(image, side))
    except UnreadableImage:
        return None
    stream = io.BytesIO()
    square.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
