"""Read the headers of images: which can be decoded, and what that takes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np

from pocketune.data.dataset import ImageDataset
from pocketune.data.images.cost import (
    MAX_WORKING_BYTES,
    Decoding,
    LargestDecoding,
    Use,
    check_size,
    limited_bytes,
)
from pocketune.data.images.headers import Header, read_header
from pocketune.data.images.opening import UnreadableImage, open_image, reading_image
from pocketune.data.images.pillow_headers import header_of
from pocketune.data.names import Indices, Names
from pocketune.data.sources import Source
from pocketune.errors import printable
from pocketune.files import Skipped


class Checked(NamedTuple):
    """Images whose headers were read.

    Attributes:
        images: Those that can be decoded, as far as their headers tell.
        skipped: The others, with the reason.
        decoding: What decoding the first takes; None if there are none.
    """

    images: ImageDataset
    skipped: tuple[Skipped, ...]
    decoding: Decoding | None


def checked(
    images: ImageDataset, size: int, max_pixels: int | None = None, use: Use | None = None
) -> Checked:
    """Read the headers of images.

    Args:
        images: The images.
        size: Height and width of the squares that they will be cut to.
        max_pixels: Leave out images of more pixels that would be decoded in full; see
            `check_size`.
        use: What else is done with each image.
    """
    largest = LargestDecoding(size, use=use)
    known, skipped = read_headers(images.source, images.names, largest, max_pixels)
    return Checked(images.subset(known), tuple(skipped), largest.decoding)


def read_headers(
    source: Source,
    names: Names,
    largest: LargestDecoding | None = None,
    max_pixels: int | None = None,
) -> tuple[Indices, list[Skipped]]:
    """The positions of the names whose header can be read, and the other files with the reason."""
    known = np.ones(len(names), bool)
    skipped: list[Skipped] = []
    for index, name in enumerate(names):
        try:
            header = _read_header(source, name)
            with reading_image(name):
                check_size(header, max_pixels)
            if largest is not None:
                largest.add(name, header)
        except UnreadableImage as error:
            known[index] = False
            skipped.append(Skipped(printable(name), error.reason))
    return np.flatnonzero(known), skipped


def _read_header(source: Source, name: str) -> Header:
    """The header of an image; Pillow reads it where it is not a usual one.

    Raises:
        UnreadableImage: The file is missing, too large or not an image.
    """
    with suppress(Exception):  # as Pillow does, which then says why
        header = read_header(partial(source.beginning, name))
        if header is not None and limited_bytes(header) <= MAX_WORKING_BYTES:
            return header
    with reading_image(name), source.open(name) as file, open_image(file) as image:
        return header_of(image)
