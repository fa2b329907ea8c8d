"""Photos with their true and their predicted mask, inside of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pocketune.data import Loader, UnreadableImage
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.pictures import colored, small_photo
from pocketune.reporting.page import Picture
from pocketune.reporting.thumbnails import QUALITY, address
from pocketune.tasks import Box, Seen
from pocketune.tasks.maps import IGNORED, class_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pocketune.data import ImageDataset
    from pocketune.device.use.model import Model

LONGEST = 288
"""Longer side of a picture, in pixels: twice that of the page, for sharp screens."""


def mask_pictures(
    model: Model, photos: ImageDataset, chosen: Sequence[int]
) -> dict[int, tuple[Picture, ...]]:
    """The photo, its true mask and the predicted one, of each chosen photo that can be read.

    Args:
        model: The model of a run.
        photos: Photos with masks.
        chosen: The positions of photos.
    """
    manifest = model.kit.manifest
    engine = OnnxEngine(model.kit, model.state)
    drawn = photos.subset(chosen)
    loader = Loader(drawn, size=manifest.size, batch=manifest.batch, train=False)
    left = iter(zip(chosen, drawn.names, strict=True))
    found: dict[int, tuple[Picture, ...]] = {}
    for batch in loader.epoch(0):
        outputs = engine.predict(batch.images)
        for name, output, label in zip(batch.names, outputs, batch.labels, strict=True):
            index = next(place for place, other in left if other == name)
            try:
                photo = small_photo(photos, index, LONGEST)
            except UnreadableImage:  # gone in the meantime
                continue
            guess = class_map(output, _scaled(label.box, label.shape, photo.size))
            found[index] = (
                Picture("photo", address(photo, "JPEG", quality=QUALITY)),
                Picture("true mask", _mask(label.mask(), photo.size)),
                Picture("predicted mask", _mask(guess, photo.size)),
            )
    return found


def _scaled(box: Box, shape: tuple[int, int], size: tuple[int, int]) -> Seen:
    """A part of an image of this shape, where the image has another size (width, height)."""
    across, down = size[0] / shape[1], size[1] / shape[0]
    return Seen(
        *size, Box(box.left * across, box.top * down, box.width * across, box.height * down)
    )


def _mask(pixels: NDArray[np.uint8], size: tuple[int, int]) -> str:
    """A mask in this size (width, height); ignored pixels are transparent."""
    small = colored(pixels).resize(size, Image.Resampling.NEAREST)
    return address(small, "PNG", transparency=IGNORED)
