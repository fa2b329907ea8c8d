"""Objects in images, from a file of annotations in COCO's format; their masks are drawn from it."""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping
from functools import partial
from itertools import chain, pairwise
from typing import IO, Any, NoReturn

from pocketune.data.masks.json_stream import members
from pocketune.data.masks.no_masks import NoMasks
from pocketune.data.masks.outlines import Outlines, corners_of, is_label, is_side
from pocketune.data.masks.polygons import check_runs, parse_runs
from pocketune.data.masks.shapes import Shapes
from pocketune.errors import PocketuneError
from pocketune.files import reading, shown
from pocketune.tasks.base import as_label

_REMEDY = "export it again"


class Annotations(Outlines):
    """The images that a file lists and the objects in them.

    Args:
        file: The file, in UTF-8.
        name: Its name, for messages.

    Raises:
        NoMasks: The file is not in COCO's format, or no object has an outline.
        PocketuneError: The file is damaged, or an object has no outline.

    Attributes:
        name: Its name.
        categories: The names of the categories that have an object, in the order of the file.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        reader = _Reader(name)
        records = members(io.TextIOWrapper(file, "utf-8-sig"))
        damaged = partial(reading, shown(name), ValueError, RecursionError, remedy=_REMEDY)
        with damaged(raises=NoMasks):
            first = next(records, ("", None))
        with damaged():
            for kind, record in chain([first], records):
                reader.add(kind, record)
        reader.check()
        numbers = range(len(reader.images))
        super().__init__(
            [reader.files[each] for each in numbers],
            [reader.sizes[each] for each in numbers],
            reader.shapes,
            [reader.labels[each] for each in range(len(reader.categories))],
        )
        self.categories = tuple(dict.fromkeys(each for each in reader.listed if each in self.used))


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
        self._box: Mapping[str, Any] | None = None  # the first object without an outline
        self._lists = {
            "images": self._add_image,
            "categories": self._add_category,
            "annotations": self._add_object,
        }

    def add(self, kind: str, record: Any) -> None:
        """A record of one of the lists; others are of no use."""
        if kind not in self._lists:
            return
        if not isinstance(record, dict):
            self._refuse(f"is damaged: {kind} are not objects", raises=NoMasks)
        self._lists[kind](record)

    def check(self) -> None:
        """Check that there is a record of each image and category that an object names.

        Raises:
            NoMasks: There is no object with an outline.
            PocketuneError: There is no such record, an object has no outline, or an image is listed
                twice.
        """
        outlined = len(self.shapes.images) > 0
        if self._box is not None:
            self._refuse_outline(self._box, "it is a box", PocketuneError if outlined else NoMasks)
        for kind, known, found in (
            ("image", self.images, self.files),
            ("category", self.categories, self.labels),
        ):
            for key, number in known.items():
                if number not in found:
                    self._refuse(f"has an object of the {kind} {key}, which it does not list")
        if not outlined:
            self._refuse("has no objects", raises=NoMasks)
        for name, other in pairwise(sorted(self.files.values())):
            if name == other:
                self._refuse(f"has the image {name} twice", "keep one of them")

    def _add_image(self, record: Mapping[str, Any]) -> None:
        file = record.get("file_name")
        height, width = record.get("height", 0), record.get("width", 0)
        if not isinstance(file, str) or not is_side(height) or not is_side(width):
            self._refuse(f"has the image {file} without a file_name, a height or a width")
        number = self._number(self.images, record, "id")
        if number in self.files:
            self._refuse(f"has two images with the id {record['id']}")
        self.files[number] = file.replace("\\", "/")
        self.sizes[number] = int(height), int(width)

    def _add_category(self, record: Mapping[str, Any]) -> None:
        label = record.get("name")
        if not is_label(label):
            self._refuse(f"has the category {record.get('id')} without a name")
        label = as_label(str(label).strip())
        self.labels[self._number(self.categories, record, "id")] = label
        self.listed.append(label)

    def _add_object(self, record: Mapping[str, Any]) -> None:
        image = self._number(self.images, record, "image_id")
        category = self._number(self.categories, record, "category_id")
        outline = record.get("segmentation")
        if not outline:
            self._box = self._box or record
            return
        try:
            if isinstance(outline, dict):
                counts = outline.get("counts", ())
                runs = parse_runs(counts) if isinstance(counts, str) else counts
                self.shapes.add_runs(image, category, check_runs(runs))
            else:
                self.shapes.add_polygons(image, category, list(map(corners_of, outline)))
        except (ValueError, TypeError) as error:
            self._refuse_outline(record, error)

    def _number(self, known: dict[Hashable, int], record: Mapping[str, Any], field: str) -> int:
        """The number of what a record calls by a field."""
        key = record.get(field)
        if not isinstance(key, (int, str)):
            self._refuse(f"has a record without {field}")
        return known.setdefault(key, len(known))

    def _refuse_outline(
        self,
        record: Mapping[str, Any],
        reason: object,
        raises: type[PocketuneError] = PocketuneError,
    ) -> NoReturn:
        self._refuse(
            f"has the object {record.get('id')} without an outline ({reason}), but masks are drawn "
            "from polygons or run-length codes",
            "export them, or remove it",
            raises,
        )

    def _refuse(
        self, what: str, remedy: str = _REMEDY, raises: type[PocketuneError] = PocketuneError
    ) -> NoReturn:
        raise raises(f"{shown(self._name)} {shown(what, 200)}; {remedy}")
