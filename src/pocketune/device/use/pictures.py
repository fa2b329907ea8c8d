"""Predicted masks as files: palette PNGs, and the photos with the classes laid over them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain, count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pocketune.data.images.cost import Use
from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import open_image, reading_image
from pocketune.data.images.transforms import resized
from pocketune.errors import PocketuneError
from pocketune.files import make_folder_of, replacing, writing
from pocketune.tasks import Box

if TYPE_CHECKING:
    from pocketune.arrays import StrPath
    from pocketune.data import ImageDataset

OPACITY = 0.5
LONGEST = 1024
"""Longer side of an overlay, in pixels."""
_MAPS = 2
"""Maps of classes in memory: the one before is released when the next is there."""
_COPIED = 1
"""Bytes for each pixel of a mask that is written."""
_DRAWN = 16
"""The same of an overlay: the photo, as two images, its colors, and both together."""


def map_use(*, pictures: bool) -> Use:
    """What maps of classes take for each photo, and pictures of them if these are written."""
    return Use(_MAPS, _COPIED, LONGEST, _DRAWN) if pictures else Use(_MAPS)


def palette(count: int = 256) -> NDArray[np.uint8]:
    """The colors (count, 3) of Pascal VOC: the bits of a number, spread over red, green and blue.

    Neighbors differ much, and 0 is black.
    """
    numbers, channels = np.arange(count)[:, None], np.arange(3)
    colors = np.zeros((count, 3), np.int64)
    for bit in range(8):
        colors |= (numbers >> (3 * bit + channels) & 1) << (7 - bit)
    return colors.astype(np.uint8)


def colored(class_map: NDArray[np.uint8]) -> Image.Image:
    """A mask (height, width) as an image whose palette has the color of each class."""
    mask = Image.fromarray(class_map)
    mask.putpalette(palette().tobytes())
    return mask


def small_photo(photos: ImageDataset, index: int, longest: int) -> Image.Image:
    """The whole of a photo, upright, whose longer side has at most so many pixels.

    Raises:
        UnreadableImage: It cannot be read.
    """
    name = photos.names[index]
    with reading_image(name), photos.open(index) as file, open_image(file) as image:
        size = oriented_size(image)
        return Image.fromarray(resized(image, Box(0, 0, *size), *_within(longest, size)))


def _within(longest: int, size: tuple[int, int]) -> tuple[int, int]:
    """A size whose longer side is at most so many pixels, in the same proportions."""
    scale = min(1.0, longest / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


class Pictures:
    """Writes `masks/` and `overlays/` of predictions, and `classes.txt`, into a folder.

    The folder is a set of masks like those that are trained on, once the photos are beside it.

    Args:
        folder: A folder that does not exist, or is empty.
        photos: The photos that are predicted.
        classes: Names of the classes.

    Raises:
        PocketuneError: The folder holds something, or cannot be written.
    """

    def __init__(self, folder: StrPath, photos: ImageDataset, classes: Sequence[str]) -> None:
        self._folder, self._photos = Path(folder), photos
        self._files = _files(photos.names)
        with writing(folder):
            if self._folder.exists() and any(self._folder.iterdir()):
                raise PocketuneError(f"{folder} is not empty: choose a new folder for the masks")
            self._folder.mkdir(parents=True, exist_ok=True)
        with replacing(self._folder / "classes.txt") as file:
            file.write_text("".join(f"{name}\n" for name in classes), encoding="utf-8")

    def write(self, index: int, class_map: NDArray[np.uint8]) -> None:
        """Write the mask (height, width) of a photo, and its overlay."""
        name = self._files[index]
        mask = colored(class_map)
        self._save(mask, f"masks/{name}.png", "PNG")
        small = mask.resize(_within(LONGEST, mask.size), Image.Resampling.NEAREST)
        del mask
        self._save(self._overlay(index, small), f"overlays/{name}.jpg", "JPEG")

    def _save(self, image: Image.Image, name: str, kind: str) -> None:
        path = self._folder / name
        make_folder_of(path)
        with replacing(path) as file:
            image.save(file, kind)

    def _overlay(self, index: int, mask: Image.Image) -> Image.Image:
        """The photo, as small as the mask, half covered by the colors of its classes."""
        photo = small_photo(self._photos, index, LONGEST)
        return Image.blend(photo, mask.convert("RGB"), OPACITY)


def _files(names: Sequence[str]) -> list[str]:
    """A path without suffix for each photo, relative to the folder that all lie in.

    Photos whose names differ in their suffix alone keep it, or get a number.
    """
    paths = [Path(os.path.abspath(name)) for name in names]  # noqa: PTH100 - removes `..`
    folders = zip(*(path.parent.parts for path in paths), strict=False)
    above = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, folders))
    files: dict[str, None] = {}
    for path in paths:
        name = "/".join(path.parts[above:])
        numbered = (f"{name} {number}" for number in count(2))
        wanted = chain((name.removesuffix(path.suffix), name), numbered)
        files[next(each for each in wanted if each not in files)] = None
    return list(files)
