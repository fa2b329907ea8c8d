"""Read which images there are from labelme's files, one beside each image, and draw their masks."""

from __future__ import annotations

import io
import math
import posixpath
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice, pairwise
from typing import IO, Any, NoReturn, cast

import numpy as np

from pocketune.data.examples import Example, Examples
from pocketune.data.labels.layouts import TestUse, in_use
from pocketune.data.masks.drawn import Drawn, DrawnSource, list_of, part_of, values_of
from pocketune.data.masks.json_stream import members
from pocketune.data.masks.outlines import Outlines, corners_of, is_label, is_side
from pocketune.data.masks.pairs import may_be_image
from pocketune.data.masks.shapes import Corners, Shapes
from pocketune.data.names import Names
from pocketune.data.sources import Source
from pocketune.errors import PocketuneError
from pocketune.files import ARCHIVE_DAMAGE, reading, shown
from pocketune.tasks.base import as_label
from pocketune.tasks.segmentation import Mask

_PHOTO = "imageData"
"""The member with a copy of the photo, which is never in memory."""
_IMAGE = "imagePath"
_DAMAGE = (ValueError, RecursionError, *ARCHIVE_DAMAGE)
_TRIED = 8
"""Files that are read to know whether a set is labelme's."""
_CIRCLE_CORNERS = 64


def is_labelme(files: Iterable[str], source: Source) -> bool:
    """Whether files are labelme's, by the members of one of the first."""
    for file in islice(files, _TRIED):
        with suppress(OSError, *_DAMAGE), source.open(file) as raw:
            if any(name == _IMAGE for name, _ in _members(raw)):
                return True
    return False


def read_labelme(
    files: Sequence[str], names: Names, source: Source, test: TestUse = "hold out"
) -> Drawn:
    """The images that labelme's files are of.

    The background has the value 0, and the labels, in alphabetical order, those from 1 on.

    Args:
        files: The files, sorted. A part, such as `train`, is named by a folder around a file.
        names: All files of the source, sorted.
        source: The files.
        test: What the images of `test` are for.

    Raises:
        PocketuneError: A file cannot be read or is damaged, a shape covers no pixels, two files are
            of one image, or there are more labels than masks have values for.
    """
    reader = _Reader()
    examples: list[Example] = []
    for file in files:
        image = reader.add(file, source)
        place = _place(file, image, names)
        examples.append(Example(place, Mask(file), part_of(posixpath.dirname(file).split("/"))))
    outlines = Outlines(files, reader.sizes, reader.shapes, list(reader.labels))
    if not outlines.used:
        raise PocketuneError(f"{shown(files[0])} and the other files like it have no objects")
    values = values_of(sorted(outlines.used), files[0])
    found = Examples(examples).sorted()
    masks = pairwise(cast("Sequence[Mask]", found.labels))
    for (place, other), (mask, another) in zip(pairwise(found.names), masks, strict=True):
        if place == other:
            raise PocketuneError(
                f"{shown(mask.name)} and {shown(another.name)} are both of {shown(place)}; "
                "keep one of them"
            )
    drawn = LabelmeSource(source, outlines, values)
    others = set(filter(may_be_image, names)).difference(found.names, files)
    return Drawn(drawn, in_use(found, test), list_of(values), Names(sorted(others)))


class LabelmeSource(DrawnSource):
    """Files, and the masks that are drawn from labelme's; the name of a mask is that of its file.

    The file itself cannot be read here.
    """

    def __init__(self, source: Source, outlines: Outlines, values: dict[str, int]) -> None:
        super().__init__(source)
        self._outlines, self._values = outlines, values

    def file_of(self, name: str) -> str | None:
        """See `DrawnSource`."""
        is_file = name.lower().endswith(".json") and self._outlines.images.find(name) is not None
        return name if is_file else None

    def draw(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """See `DrawnSource`."""
        return self._outlines.open(name, self._values)


class _Reader:
    """Collects the shapes of files.

    Attributes:
        shapes: The outlines of all shapes.
        sizes: The height and width of the image of each file.
        labels: The number of each label.
    """

    def __init__(self) -> None:
        self.shapes = Shapes()
        self.sizes: list[tuple[int, int]] = []
        self.labels: dict[str, int] = {}

    def add(self, file: str, source: Source) -> str:
        """Read a file; the path of its image, as it is there."""
        known: dict[str, Any] = {}
        with reading(shown(file), *_DAMAGE, remedy="save it again"), source.open(file) as raw:
            for name, value in _members(raw):
                if name == "shapes":
                    self._add_shape(file, value)
                else:
                    known[name] = value
        image = known.get(_IMAGE)
        if not isinstance(image, str):
            _refuse(file, f"has no {_IMAGE}, as files of labelme have", "remove it from the photos")
        height, width = known.get("imageHeight", 0), known.get("imageWidth", 0)
        if not is_side(height) or not is_side(width):
            _refuse(file, "has no imageHeight or no imageWidth", "save it again with labelme")
        self.sizes.append((int(height), int(width)))
        return image.replace("\\", "/")

    def _add_shape(self, file: str, shape: Any) -> None:
        if not isinstance(shape, dict) or not is_label(shape.get("label")):
            _refuse(file, "has a shape without a label", "name it or remove it")
        label = as_label(shape["label"].strip())
        kind = shape.get("shape_type") or "polygon"
        try:
            corners = _corners(kind, shape.get("points"))
        except (ValueError, TypeError) as error:
            _refuse(file, f"has a shape of {label!r} that covers no pixels: {error}", "correct it")
        number = self.labels.setdefault(label, len(self.labels))
        self.shapes.add_polygons(len(self.sizes), number, [corners])


def _members(raw: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The members of a file, and each of its shapes, without the copy of the photo."""
    return members(io.TextIOWrapper(raw, "utf-8-sig"), without=_PHOTO)


def _corners(kind: str, points: Any) -> Corners:
    """The corners (n, 2) of a shape.

    Raises:
        ValueError, TypeError: It is not a polygon, a rectangle or a circle.
    """
    corners = corners_of([number for point in points for number in point])
    if kind == "polygon" and len(corners) > 2:
        return corners
    if kind == "rectangle" and len(corners) == 2:
        (left, top), (right, bottom) = corners
        return corners_of([left, top, right, top, right, bottom, left, bottom])
    if kind == "circle" and len(corners) == 2:
        angles = np.linspace(0, 2 * math.pi, _CIRCLE_CORNERS, endpoint=False)
        radius = math.dist(*corners.tolist())
        around = corners[0] + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return corners_of(around.reshape(-1))
    if kind in ("polygon", "rectangle", "circle"):
        raise ValueError(f"it is a {kind} of {len(corners)} points")
    raise ValueError(f"it is a {kind}, but masks are drawn of polygons, rectangles and circles")


def _place(file: str, image: str, names: Names) -> str:
    """The image of a file: the one that it names, or else the one of the same name beside it."""
    folder = posixpath.dirname(file)
    named = posixpath.normpath(posixpath.join(folder, image or posixpath.basename(file)))
    if image and names.find(named) is not None:
        return named
    stem = f"{file[: -len('.json')]}."
    for index in range(bisect_left(names, stem), len(names)):
        if not names[index].startswith(stem):
            break
        if names[index] != file:
            return names[index]
    return named


def _refuse(file: str, what: str, remedy: str) -> NoReturn:
    raise PocketuneError(f"{shown(file)} {shown(what, 200)}; {remedy}")
