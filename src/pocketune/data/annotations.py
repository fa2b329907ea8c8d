"""Objects in images, from a file of annotations in COCO's format; their masks are drawn from it.

A mask is drawn each time it is read. Only the outlines of the objects are in memory.
"""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import IO, Any, NoReturn

import numpy as np

from pocketune.arrays import distinct
from pocketune.data.decoding import MASK_BYTES, MAX_WORKING_BYTES, turn_for
from pocketune.data.json_stream import members
from pocketune.data.names import Names
from pocketune.data.polygons import check_runs, parse_runs
from pocketune.data.shapes import Corners, Shapes
from pocketune.errors import PocketuneError
from pocketune.files import reading, shown
from pocketune.tasks.base import as_label

BACKGROUND = "background"
"""The class of the pixels without an object."""
_PIXEL_BYTES = 8  # what limits the size of other gray images


class Annotations:
    """The images that a file lists and the objects in them.

    Args:
        file: The file, in UTF-8.
        name: Its name, for messages.

    Raises:
        PocketuneError: The file is damaged, or an object has no outline.

    Attributes:
        name: Its name.
        images: The names of the images, sorted.
        categories: The names of the categories that have an object, in the order of the file.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        reader = _Reader(name)
        with reading(shown(name), ValueError, RecursionError, remedy="export it again"):
            for kind, record in members(io.TextIOWrapper(file, "utf-8-sig")):
                reader.add(kind, record)
        reader.check()
        self._shapes = reader.shapes
        ranks = sorted(range(len(reader.images)), key=lambda each: reader.files[each])
        self.images = Names(reader.files[each] for each in ranks)
        self._sizes = np.array([reader.sizes[each] for each in ranks]).reshape(-1, 2)
        self._order = self._shapes.order()
        ordered = self._shapes.images[self._order]
        self._starts = np.searchsorted(ordered, ranks)
        self._ends = np.searchsorted(ordered, ranks, side="right")
        self._named = tuple(reader.labels[each] for each in range(len(reader.categories)))
        used = {self._named[each] for each in distinct(self._shapes.categories).tolist()}
        self.categories = tuple(dict.fromkeys(each for each in reader.listed if each in used))

    @contextmanager
    def open(self, image: str, values: Mapping[str, int]) -> Iterator[IO[bytes]]:
        """The mask of an image as a file, in Netpbm's gray format.

        Larger objects are drawn first, so that smaller ones within them are seen. Pixels without an
        object are 0.

        Args:
            image: One of `images`.
            values: The value of each category.

        Raises:
            FileNotFoundError: There is no such image.
            ValueError: The image is too large, or a run-length code is not of its size.
        """
        index = self.images.find(image)
        if index is None:
            raise FileNotFoundError(image)
        height, width = self._sizes[index].tolist()
        if height * width * _PIXEL_BYTES > MAX_WORKING_BYTES:
            raise ValueError(f"its {width} x {height} pixels are too many; make the image smaller")
        shapes = self._order[self._starts[index] : self._ends[index]].tolist()
        with turn_for(MASK_BYTES * height * width):
            pixels = np.zeros((height, width), np.uint8)
            # A category without an object may have no value.
            self._shapes.fill(pixels, shapes, [values.get(each, 0) for each in self._named])
            mask = b"".join([f"P5 {width} {height} 255\n".encode(), pixels.data])
            del pixels
        with io.BytesIO(mask) as file:
            yield file


class _Reader:
    """Collects the records of a file, which may come in any order.

    Attributes:
        shapes: The outlines of all objects.
        images, categories: The number of each, by what the file calls its `id`.
        files: The file of each image, by its number.
        sizes: The height and width of each.
        labels: The name of each category, by its number.
        listed: The names of the categories, in the order of the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.shapes = Shapes()
        self.images: dict[Hashable, int] = {}
        self.categories: dict[Hashable, int] = {}
        self.files: dict[int, str] = {}
        self.sizes: dict[int, tuple[int, int]] = {}
        self.labels: dict[int, str] = {}
        self.listed: list[str] = []

    def add(self, kind: str, record: Any) -> None:
        """A record of one of the lists; others are of no use."""
        if kind not in ("images", "categories", "annotations"):
            return
        if not isinstance(record, dict):
            raise ValueError(f"{kind} are not objects")
        getattr(self, f"_add_{kind}")(record)

    def check(self) -> None:
        """Check that there is a record of each image and category that an object names.

        Raises:
            PocketuneError: There is none; or there is no image, or no object.
        """
        for kind, known, found in (
            ("image", self.images, self.files),
            ("category", self.categories, self.labels),
        ):
            for key, number in known.items():
                if number not in found:
                    self._refuse(f"has an object of the {kind} {key}, which it does not list")
        if not len(self.shapes.images):
            self._refuse("has no objects")
        for name, other in pairwise(sorted(self.files.values())):
            if name == other:
                self._refuse(f"has the image {name} twice", "keep one of them")

    def _add_images(self, record: Mapping[str, Any]) -> None:
        file, height, width = (
            record.get("file_name"),
            record.get("height", 0),
            record.get("width", 0),
        )
        if not isinstance(file, str) or not _is_side(height) or not _is_side(width):
            self._refuse(f"has the image {file} without a file_name, a height or a width")
        number = self._number(self.images, record, "id")
        if number in self.files:
            self._refuse(f"has two images with the id {record['id']}")
        self.files[number] = file.replace("\\", "/")
        self.sizes[number] = int(height), int(width)

    def _add_categories(self, record: Mapping[str, Any]) -> None:
        label = record.get("name")
        if not isinstance(label, str) or not label.strip() or len(label.splitlines()) > 1:
            self._refuse(f"has the category {record.get('id')} without a name")
        label = as_label(label.strip())
        self.labels[self._number(self.categories, record, "id")] = label
        self.listed.append(label)

    def _add_annotations(self, record: Mapping[str, Any]) -> None:
        image = self._number(self.images, record, "image_id")
        category = self._number(self.categories, record, "category_id")
        outline = record.get("segmentation")
        try:
            if isinstance(outline, dict):
                counts = outline.get("counts", ())
                runs = parse_runs(counts) if isinstance(counts, str) else counts
                self.shapes.add_runs(image, category, check_runs(runs))
            else:
                if not outline:
                    raise ValueError("it is a box")
                self.shapes.add_polygons(image, category, list(map(_corners, outline)))
        except (ValueError, TypeError) as error:
            self._refuse(
                f"has the object {record.get('id')} without an outline ({error}), but masks are "
                "drawn from polygons or run-length codes",
                "export them, or remove it",
            )

    def _number(self, known: dict[Hashable, int], record: Mapping[str, Any], field: str) -> int:
        """The number of what a record calls by a field."""
        key = record.get(field)
        if not isinstance(key, (int, str)):
            self._refuse(f"has a record without {field}")
        return known.setdefault(key, len(known))

    def _refuse(self, what: str, remedy: str = "export it again") -> NoReturn:
        raise PocketuneError(f"{shown(self._name)} {shown(what, 200)}; {remedy}")


def _is_side(value: Any) -> bool:
    """Whether a value is a number of pixels; some programs write it as 640.0."""
    return isinstance(value, (int, float)) and 0 < value < 2**31 and value == int(value)


def _corners(numbers: Any) -> Corners:
    """The corners (n, 2) of a polygon, from x and y of each in turn."""
    corners = np.array(numbers, np.float32)
    if corners.ndim != 1 or len(corners) % 2 or not all(map(math.isfinite, corners.tolist())):
        raise ValueError("a polygon is not a list of x and y")
    return corners.reshape(-1, 2)
