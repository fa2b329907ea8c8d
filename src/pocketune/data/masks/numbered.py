"""Masks: image files whose pixels are numbers of classes.

A mask is a PNG (or another lossless format) of one channel of 8 bits. The pixels of a palette image
are the positions in its palette; they are never converted to colors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
from PIL import Image

from pocketune.data.examples import Example, Examples
from pocketune.data.images.cost import MASK_BYTES, LargestDecoding, turn_for
from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import UnreadableImage, open_image, reading_image
from pocketune.data.masks.drawn import DrawnSource
from pocketune.data.masks.values import VALUES
from pocketune.errors import PocketuneError, printable
from pocketune.files import Skipped, shown
from pocketune.tasks.maps import STRIP, ClassMap, count_values
from pocketune.tasks.packed import packed_bytes
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from pocketune.data.sources import Source

_STEPS = {"L;2": 85, "L;4": 17}
"""What Pillow multiplies gray values of 2 or 4 bits by, so that the largest one is white."""
Color = tuple[int, int, int]
AfterMask = Callable[[int, int], None]
"""Called after each mask with the number of masks that were read and that of all."""


@dataclass(frozen=True, eq=False)
class Masks:
    """Reads the masks of images.

    Attributes:
        source: The folder or archive that holds the files.
        numbers: uint8 (256,), the class of each pixel value; 255 for values that do not count.
    """

    source: Source
    numbers: ClassMap

    def read(self, name: str, width: int, height: int) -> ClassMap:
        """The class (height, width) of each pixel of an image of this size.

        Raises:
            UnreadableImage: The file cannot be read, or is no mask of such an image.
        """
        try:
            with reading_image(name), self.source.open(name) as file:
                values, _ = _values(file)
                if values.shape != (height, width):
                    raise ValueError("it has another size than its image")
        except PocketuneError as error:
            reason = error.reason if isinstance(error, UnreadableImage) else str(error)
            raise UnreadableImage(name, _of_mask(name, reason)) from error
        pixels = values.reshape(-1)
        for start in range(0, len(pixels), STRIP):  # numpy takes eight bytes for each number
            pixels[start : start + STRIP] = self.numbers[pixels[start : start + STRIP]]
        return values


def scan(
    source: Source,
    examples: Sequence[Example],
    after: AfterMask,
    decoding: LargestDecoding | None = None,
) -> tuple[Examples, list[Skipped]]:
    """Read all masks once: the examples with the pixels of each value, and damaged files.

    Args:
        source: The folder or archive that holds the files.
        examples: The images, with their masks as labels.
        after: See `AfterMask`.
        decoding: Finds what the masks take that wait for an evaluation.

    Raises:
        PocketuneError: A file is not a mask, or not one of its image; or palettes differ.
    """
    skipped: list[Skipped] = []
    palettes = _Palettes()

    def known() -> Iterator[Example]:
        for number, example in enumerate(examples, 1):
            mask = example.label
            assert isinstance(mask, Mask)  # from the reader of a table, or from a layout
            try:
                pixels, packed = _scanned(source, example.name, mask.name, palettes)
            except UnreadableImage as error:
                skipped.append(Skipped(printable(example.name), _of_mask(mask.name, error.reason)))
            else:
                if decoding is not None:
                    decoding.add_mask(sum(count for _, count in pixels), packed)
                yield example._replace(label=mask._replace(pixels=pixels))
            after(number, len(examples))

    return Examples(known()), skipped


def _of_mask(name: str, reason: str) -> str:
    """Why an image is not used, if its mask is the reason."""
    return f"its mask {shown(name)}: {reason}"


def _scanned(
    source: Source, image: str, mask: str, palettes: _Palettes
) -> tuple[tuple[tuple[int, int], ...], int]:
    """The number of pixels of each value in a mask, and the bytes that it takes packed."""
    with reading_image(image), source.open(image) as file, open_image(file) as photo:
        size, stored = oriented_size(photo), photo.size
    with reading_image(mask), source.open(mask) as file:
        values, colors = _values(file, mask)
    if values.shape[::-1] != size:
        height, width = values.shape
        remedy = "save the mask at the image's size"
        if (width, height) == stored:  # that of many programs, which do not turn it
            remedy = "its EXIF orientation turns the image: turn the mask, or remove that tag"
        elif isinstance(source, DrawnSource):
            remedy = "correct the size in the annotations"
        raise PocketuneError(
            f"the mask {shown(mask)} has {width} x {height} pixels and its image {shown(image)} "
            f"{size[0]} x {size[1]}; {remedy}"
        )
    counts = count_values(values)
    pixels = tuple((value, int(counts[value])) for value in np.flatnonzero(counts).tolist())
    palettes.check(mask, colors, [value for value, _ in pixels])
    return pixels, packed_bytes(values)


def _values(file: IO[bytes], name: str = "the mask") -> tuple[ClassMap, bytes | None]:
    """The pixels (height, width) of a mask, and the colors of its palette if it has one."""
    with open_image(file) as image, turn_for(MASK_BYTES * image.width * image.height):
        if image.format == "JPEG":
            raise PocketuneError(
                f"the mask {shown(name)} is a JPEG, whose compression changes classes at edges; "
                "save masks as PNG"
            )
        if image.mode not in ("1", "L", "P"):
            raise PocketuneError(f"the mask {shown(name)} {_wrong(image)}")
        step = gray_step(image)
        image.load()
        palette = image.getpalette("RGB") if image.mode == "P" else None
        return _pixels(image, step), bytes(palette) if palette else None


def gray_step(image: Image.Image) -> int:
    """What Pillow multiplies the values of an image by, as it does with gray of 2 or 4 bits.

    The image is not decoded yet.
    """
    tiles = getattr(image, "tile", []) if image.format in ("PNG", "TIFF") else []
    stored = tiles[0][3] if tiles else ""
    return _STEPS.get(stored if isinstance(stored, str) else stored[0], 1)


def _pixels(image: Image.Image, step: int) -> ClassMap:
    """The pixels (height, width) of an image of one channel, which are copied strip by strip."""
    values = np.empty((image.height, image.width), np.uint8)
    count = max(1, STRIP // image.width)
    for top in range(0, image.height, count):
        bottom = min(top + count, image.height)
        values[top:bottom] = np.asarray(image.crop((0, top, image.width, bottom)))
        if step > 1:
            values[top:bottom] //= step
    return values


def _wrong(image: Image.Image) -> str:
    """What is wrong with a mask of several channels or of more than 8 bits, and the remedy."""
    if image.mode.startswith(("I", "F")):
        return f"has more than 8 bits a pixel (mode {image.mode}); save it with 8"
    colors = image.convert("RGB").getcolors(VALUES)
    if colors is None:
        return (
            f"is a picture of more than {VALUES} colors (mode {image.mode}), but a mask has a "
            "number for each pixel; check that images and masks are not exchanged"
        )
    return (
        f"has {len(colors)} colors (mode {image.mode}), but a mask has a number for each pixel; "
        "save it as a gray or palette PNG whose pixels are the numbers of the classes"
    )


class _Palettes:
    """The color of each value, which must be the same in all masks with a palette.

    Masks of several sets, or masks that a program has reduced to as few colors as each needs, give
    one value several meanings.
    """

    def __init__(self) -> None:
        self._colors: dict[int, tuple[Color, str]] = {}

    def check(self, name: str, palette: bytes | None, values: Iterable[int]) -> None:
        """Compare the colors of the values that occur in a mask with those of earlier masks."""
        if not palette:
            return
        for value in values:
            red, green, blue = palette[3 * value : 3 * value + 3].ljust(3, b"\0")
            color, other = self._colors.setdefault(value, ((red, green, blue), name))
            if color != (red, green, blue):
                raise PocketuneError(
                    f"the mask {shown(name)} has another palette than {shown(other)}: the value "
                    f"{value} is the color {(red, green, blue)} in one and {color} in the other; "
                    "save all masks with one palette"
                )
