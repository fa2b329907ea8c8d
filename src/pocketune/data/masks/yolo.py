"""Read which images there are from folders of YOLO, and draw masks from their polygons.

Folders are `images/1.jpg` and `labels/1.txt`, also within `train/` and `val/` or with these within
them. A line of a label is the number of a class and the corners of a polygon, as fractions of
the sides of the image.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import numpy as np

from pocketune.data.images.decode import oriented_size
from pocketune.data.images.opening import open_image, reading_image
from pocketune.data.labels.layouts import TestUse, in_use, wrapper
from pocketune.data.labels.lists import content, read_list
from pocketune.data.masks.drawn import Drawn, DrawnSource, list_of, values_of
from pocketune.data.masks.no_masks import NoMasks
from pocketune.data.masks.outlines import corners_of, drawing
from pocketune.data.masks.pairs import in_folders, paired
from pocketune.data.masks.polygons import area, fill_polygon
from pocketune.data.masks.shapes import Corners
from pocketune.data.masks.values import NAMES_FILES
from pocketune.data.masks.values import parse_names as parse_lines
from pocketune.data.masks.yolo_names import parse_names
from pocketune.data.names import Names
from pocketune.data.sources import Source
from pocketune.errors import PocketuneError
from pocketune.files import reading, shown
from pocketune.tasks.base import as_label

FOLDERS = ("images", "labels")
_SUFFIX = ".txt"
_YAML = (".yaml", ".yml")
_USUAL = "data."
"""How the name of the file of the names of classes usually begins."""
_BOX = 4  # numbers
_A_BOX = (
    "a box, but masks are drawn from polygons, and boxes are not supported; export the polygons, "
    "as for YOLO segmentation"
)
_FEWEST = 3  # corners
_LARGEST = 2.0  # a corner may lie a little outside of its image, whose sides are 1


def read_yolo(names: Names, source: Source, where: str, test: TestUse = "hold out") -> Drawn | None:
    """The images that have a label, which may be empty; None if none has one.

    The background has the value 0, and the classes of `data.yaml`, or else of `classes.txt`, those
    from 1 on.

    Args:
        names: All files of the source, sorted; some are in folders `images` and `labels`.
        source: The files.
        where: The root, for messages.
        test: What the images of `test` are for.

    Raises:
        NoMasks: The labels are of boxes; or the names of the classes are missing, and the labels
            have no polygons.
        PocketuneError: The names of the classes are missing or cannot be read, there are more than
            masks have values for, or two files stand for one image.
    """
    prefix = wrapper(names)
    images, labels = in_folders(names, prefix, FOLDERS, where, _is_text)
    keys = sorted(images.keys() & labels.keys(), key=labels.__getitem__)
    if not keys:
        return None
    first, numbers = _first_line((labels[key] for key in keys), source)
    if numbers == 1 + _BOX:
        raise NoMasks(f"{shown(first)} begins with {_A_BOX}")
    listed = _class_names(names, prefix, source)
    if listed is None:
        raise (PocketuneError if numbers > 1 + _BOX else NoMasks)(
            f"{where} has labels of YOLO without the names of their classes; add data.yaml with a "
            "line such as names: [cat, dog]"
        )
    values = values_of(listed.values(), where)
    classes = {number: values[label] for number, label in listed.items()}
    examples = paired(keys, images, labels)
    drawn = YoloSource(source, Names(labels[key] for key in keys), examples.names, classes)
    unlabeled = Names(images[key] for key in sorted(images.keys() - labels.keys()))
    return Drawn(drawn, in_use(examples, test), list_of(values), unlabeled)


def _is_text(name: str) -> bool:
    return name.lower().endswith(_SUFFIX)


class YoloSource(DrawnSource):
    """Files, and the masks that are drawn from labels; the name of a mask is that of its label.

    Args:
        source: The files.
        labels: The labels, sorted.
        images: The image of each.
        values: The value of each class, by its number in a label.
    """

    def __init__(
        self, source: Source, labels: Names, images: Names, values: Mapping[int, int]
    ) -> None:
        super().__init__(source)
        self._labels, self._images, self._values = labels, images, values

    def file_of(self, name: str) -> str | None:
        """See `DrawnSource`."""
        is_label = _is_text(name) and self._labels.find(name) is not None
        return name if is_label else None

    @contextmanager
    def draw(self, name: str) -> Iterator[IO[bytes]]:
        """See `DrawnSource`; larger polygons are drawn first."""
        index = self._labels.find(name)
        assert index is not None  # as `file_of` says
        image = self._images[index]
        with reading_image(image), self.files.open(image) as file, open_image(file) as photo:
            width, height = oriented_size(photo)
        with self.files.open(name) as file:
            polygons = _polygons(content(file, name), name, (width, height), self._values)
        with drawing(height, width) as canvas:
            for corners, value in sorted(polygons, key=lambda each: -area(each[0])):
                fill_polygon(canvas.pixels, corners, value)
            mask = canvas.done()
        with io.BytesIO(mask) as drawn:
            yield drawn


def _polygons(
    text: bytes, name: str, size: tuple[int, int], values: Mapping[int, int]
) -> list[tuple[Corners, int]]:
    """The polygons of a label, in pixels, each with the value of its class.

    Raises:
        PocketuneError: A line is none, or of a class without a name.
    """
    found = []
    for number, line in enumerate(text.decode("utf-8-sig", "replace").splitlines(), 1):
        if not line.strip():
            continue
        place = f"{shown(name)} has in line {number}"
        try:
            label, *numbers = map(float, line.split())
            corners = corners_of(numbers)
        except ValueError:
            raise PocketuneError(
                f"{place} no class and corners of a polygon; export it again"
            ) from None
        if len(numbers) == _BOX:
            raise PocketuneError(f"{place} {_A_BOX}")
        if len(corners) < _FEWEST or np.abs(corners).max() > _LARGEST:
            raise PocketuneError(
                f"{place} no corners as fractions of the sides of the image; export it again"
            )
        if label not in values:
            raise PocketuneError(
                f"{place} the class {label:g}, which has no name; add it to data.yaml"
            )
        found.append((corners * np.array(size, np.float32), values[int(label)]))
    return found


def _first_line(labels: Iterable[str], source: Source) -> tuple[str, int]:
    """The first label that is not empty, and how many numbers its first line has; 0 for words."""
    for name in labels:
        if text := read_list(source, name).strip():
            try:
                return name, len([float(each) for each in text.splitlines()[0].split()])
            except ValueError:
                break
    return "", 0


def _class_names(names: Names, prefix: str, source: Source) -> dict[int, str] | None:
    """The name of each class by its number, from `data.yaml` or another such file with names."""
    beside = [name for name in names if "/" not in name[len(prefix) :]]
    files = [name for name in beside if name.lower().endswith(_YAML)]
    files.sort(key=lambda name: not posixpath.basename(name).lower().startswith(_USUAL))
    for name in files:
        with reading(shown(name), ValueError, remedy="write names: [cat, dog]"):
            found = parse_names(read_list(source, name).decode("utf-8-sig"))
        if found:  # settings of a training lie there, too
            return _labels(found)
    for name in names:
        if posixpath.basename(name).casefold() in NAMES_FILES:
            return _labels(parse_lines(read_list(source, name), name))
    return None


def _labels(names: Mapping[int, str]) -> dict[int, str]:
    return {number: as_label(name) for number, name in sorted(names.items())}
