"""Masks: image files whose pixels are numbers of classes.

A mask is a PNG (or another lossless format) of one channel of 8 bits. The pixels of a palette image
are the positions in its palette; they are never converted to colors.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from PIL import Image

from pocketune.data.decoding import MASK_BYTES, LargestDecoding, turn_for
from pocketune.data.examples import Example, Examples
from pocketune.data.images import (
    UnreadableImage,
    open_image,
    oriented_size,
    reading_image,
)
from pocketune.errors import PocketuneError, Remedy, printable
from pocketune.files import Skipped, reading, regular, shown
from pocketune.tasks.maps import IGNORED, STRIP, ClassMap, count_values
from pocketune.tasks.packed import packed_bytes
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from pocketune.data.sources import Source

VALUES = 256
NAMES_FILES = ("classes.txt", "labels.txt")
MOST_UNNAMED = 64
"""Values that may occur without names. More are those of a photo, or of smoothed edges."""
_SHOWN = 12

Color = tuple[int, int, int]
AfterMask = Callable[[int, int], None]
"""Called after each mask with the number of masks that were read and that of all."""


@dataclass(frozen=True, kw_only=True)
class MaskOptions:
    """How the values of masks are read.

    Attributes:
        ignore: Values or names of classes that do not count, separated by commas; or `none`. 255
            does not count either, except with `none`. None is 255.
        class_names: A text file, or names separated by commas; see `value_names`. None is the
            file `classes.txt` or `labels.txt` of the photos, if there is one.
    """

    ignore: str | None = None
    class_names: str | None = None

    def check_unused(self, task: str) -> None:
        """Refuse options where no masks are read.

        Raises:
            PocketuneError: An option is set.
        """
        for name, value in vars(self).items():
            if value is not None:
                raise PocketuneError(
                    f"{name}={value!r} has no effect: it is for masks, and the photos are read for "
                    f"the task {task}; leave it out"
                )


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
        size = oriented_size(photo)
    with reading_image(mask), source.open(mask) as file:
        values, colors = _values(file, mask)
    if values.shape[::-1] != size:
        height, width = values.shape
        raise PocketuneError(
            f"the mask {shown(mask)} has {width} x {height} pixels and its image {shown(image)} "
            f"{size[0]} x {size[1]}; save the mask at the image's size"
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
        image.load()
        palette = image.getpalette("RGB") if image.mode == "P" else None
        return _pixels(image), bytes(palette) if palette else None


def _pixels(image: Image.Image) -> ClassMap:
    """The pixels (height, width) of an image of one channel, which are copied strip by strip."""
    values = np.empty((image.height, image.width), np.uint8)
    count = max(1, STRIP // image.width)
    for top in range(0, image.height, count):
        bottom = min(top + count, image.height)
        values[top:bottom] = np.asarray(image.crop((0, top, image.width, bottom)))
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


# Names of values.


def value_names(
    masks: Sequence[Mask],
    options: MaskOptions,
    where: str,
    listed: tuple[str, bytes] | None = None,
    classes: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """The class of each pixel value; empty for values that do not count.

    The names are those of `options`, or else of the file `listed`: a line for each value from 0
    on, or `VALUE=NAME`. Otherwise a model's `classes` name the values that count, in order; and
    without a model, each value that occurs is its own name.

    Args:
        masks: All masks, with their pixels.
        options: How they are read.
        where: The place of the photos, for messages.
        listed: A file of names, and its bytes.
        classes: Names of a model's classes.

    Raises:
        PocketuneError: The names or the ignored values are invalid, or a value has no name.
    """
    found = Counter[int]()
    for mask in masks:
        found.update(dict(mask.pixels))
    names = _named(options, listed)
    ignored = _ignored(options.ignore, names or {}, where)
    if not found.keys() - ignored:
        raise PocketuneError(
            f"every pixel of the masks of {where} is ignored: they have the values "
            f"{shares(found)}; check the masks, and which of their values are ignored"
        )
    if options.ignore is None and not classes:
        _refuse_binary(found, where)
    if names is None and classes and not all(name.isdecimal() for name in classes):
        counted = (value for value in range(VALUES) if value not in ignored)
        names = dict(zip(counted, classes, strict=False))
    if names is None:
        names = {value: str(value) for value in found if value not in ignored}
        if len(names) > MOST_UNNAMED:
            raise PocketuneError(
                f"the masks of {where} have {len(names)} different values, as photos or smoothed "
                "edges have; name the classes in classes.txt if they are classes"
            )
    _refuse_unnamed(masks, names, ignored, where)
    return tuple("" if v in ignored else names.get(v, "") for v in range(VALUES))


def _named(options: MaskOptions, listed: tuple[str, bytes] | None) -> dict[int, str] | None:
    """The names that the user gives, by value."""
    given = options.class_names
    if given is None:
        return None if listed is None else parse_names(listed[1], listed[0])
    path = Path(given)
    if "," in given and not os.path.exists(path):  # noqa: PTH110 - it never fails
        return parse_names(given.replace(",", "\n").encode(), "the option class_names")
    with reading(shown(given), remedy="give a text file, or names separated by commas"):
        return parse_names(regular(path).read_bytes(), given)


def parse_names(text: bytes, where: str) -> dict[int, str]:
    """Names of classes by pixel value: a line for each from 0 on, or `VALUE=NAME`.

    Raises:
        PocketuneError: The text is not UTF-8, or a value or name is invalid or occurs twice.
    """
    try:
        lines = text.decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise PocketuneError(
            f"{shown(where)} is not a list of names in UTF-8; save it as one"
        ) from error
    names: dict[int, str] = {}
    for number, line in enumerate(lines):
        value, name = number, line.strip()
        if explicit := re.fullmatch(r"(\d+)\s*=\s*(.*)", name):
            value, name = int(explicit[1]), explicit[2]
        if not name or value >= VALUES:
            raise PocketuneError(
                f"{shown(where)} has no name of a value of 0 to {VALUES - 1} in line {number + 1}: "
                f"{shown(line)!r}; write a name on each line"
            )
        if value in names or name in names.values():
            raise PocketuneError(
                f"{shown(where)} has {shown(name)!r} or its value {value} twice; keep one line"
            )
        names[value] = name
    if not names:
        raise PocketuneError(f"{shown(where)} is empty; write the name of a class on each line")
    return names


def _ignored(given: str | None, names: dict[int, str], where: str) -> set[int]:
    """The values that do not count."""
    if given == "none":
        return set()
    values = {name: value for value, name in names.items()}
    ignored = {IGNORED}
    for token in (str(IGNORED) if given is None else given).split(","):
        each = token.strip()
        value = values.get(each, int(each) if each.isdecimal() else VALUES)
        if value >= VALUES:
            known = f"the classes are {shown(', '.join(values), 200)}" if values else "give a value"
            raise PocketuneError(
                f"ignore={shown(each)!r} is neither a value of 0 to {VALUES - 1} nor a class of "
                f"{where}; {known}"
            )
        ignored.add(value)
    return ignored


def _refuse_binary(found: Counter[int], where: str) -> None:
    """Refuse masks of which nothing but one value would count: is 255 the object or ignored?"""
    if found[IGNORED] and len(found) == 2:
        raise PocketuneError(
            f"the masks of {where} have only the values {shares(found)}, and {IGNORED} means "
            "ignored by default",
            remedy=Remedy(
                "binary masks",
                'give ignore="none" if it is a class, or ignore="255" if it is to be ignored',
            ),
        )


def _refuse_unnamed(
    masks: Sequence[Mask], names: dict[int, str], ignored: set[int], where: str
) -> None:
    """Refuse a value that is neither named nor ignored."""
    for mask in masks:
        for value, pixels in mask.pixels:
            if value not in names and value not in ignored:
                share = pixels / sum(count for _, count in mask.pixels)
                raise PocketuneError(
                    f"the mask {shown(mask.name)} in {where} has the value {value} "
                    f"({share:.1%} of its pixels), but the {len(names)} classes are the values "
                    f"{_range(names)}; name it, or ignore {value}"
                )


def shares(found: Counter[int]) -> str:
    """Values with their share of the pixels, in words."""
    total = sum(found.values())
    parts = [f"{value} ({found[value] / total:.1%})" for value in sorted(found)]
    return ", ".join(parts[:_SHOWN]) + ", ..." * (len(parts) > _SHOWN)


def _range(names: Iterable[int]) -> str:
    values = sorted(names)
    if values == list(range(len(values))):
        return f"0 to {len(values) - 1}"
    return shown(", ".join(map(str, values)), 60)
