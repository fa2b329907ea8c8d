"""Read which images there are from files of annotations in COCO's format, and draw their masks.

Such a file is `annotations.json`, `_annotations.coco.json` or `instances_train2017.json`, or
has another name and the records of one. It lies beside the images, or in a folder beside theirs.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import IO

from pocketune.data.examples import Example, Examples, unique
from pocketune.data.labels.layouts import PARTS, TestUse, in_use
from pocketune.data.masks.annotations import Annotations
from pocketune.data.masks.drawn import Drawn, DrawnSource, list_of, part_of, values_of
from pocketune.data.masks.json_stream import members
from pocketune.data.masks.pairs import FOLDERS
from pocketune.data.names import Names
from pocketune.data.sources import Source
from pocketune.files import ARCHIVE_DAMAGE, reading, shown
from pocketune.tasks.segmentation import Mask

SUFFIX = ".json"
ANNOTATIONS = "annotations"
"""The folder of files of annotations, beside that of their images."""
_NAMES = re.compile(r"(annotations|_annotations\.coco|instances_\w+)\.json", re.IGNORECASE)
_PART = re.compile(rf"(?:instances_)?({'|'.join(PARTS)})\d*", re.IGNORECASE)
_TRIED = 8
"""Files that are read to know whether they are annotations. Files for each photo are more."""
_RECORDS = 1_000
"""Records that are read of each, such as the licenses and categories."""


def is_annotations(name: str) -> bool:
    """Whether a file has the name of annotations in COCO's format."""
    return _NAMES.fullmatch(posixpath.basename(name)) is not None


def annotations_among(files: Sequence[str], source: Source) -> list[str]:
    """The files of annotations among a few, recognized by their first images or objects."""
    return [file for file in files if _has_records(file, source)] if len(files) <= _TRIED else []


def _has_records(file: str, source: Source) -> bool:
    damage = (OSError, ValueError, RecursionError, *ARCHIVE_DAMAGE)
    with suppress(*damage), source.open(file) as raw:
        for kind, record in islice(members(io.TextIOWrapper(raw, "utf-8-sig")), _RECORDS):
            if kind in ("images", "annotations"):
                return isinstance(record, dict) and not record.keys().isdisjoint(
                    ("file_name", "image_id")
                )
    return False


def read_annotations(
    files: Sequence[str], names: Names, source: Source, test: TestUse = "hold out"
) -> Drawn:
    """The images that files of annotations list.

    The background has the value 0, and the categories that have an object those from 1 on. Those of
    one name are one class, in all files together.

    Args:
        files: The files. A part, such as `train`, is named by a folder around the file, or by
            the file: `instances_train2017.json` or `train.json`.
        names: All files of the source, sorted.
        source: The files.
        test: What the images of `test` are for.

    Raises:
        PocketuneError: A file cannot be read or is damaged, two files list the same image, or there
            are more categories than masks have values for.
    """
    read = []
    for file in files:
        with reading(shown(file)), source.open(file) as stream:
            read.append(Annotations(stream, file))
    values = values_of((label for each in read for label in each.categories), files[0])
    drawn = AnnotatedSource(source, read, values)
    examples = Examples(example for each in read for example in _examples(each, names))
    return Drawn(drawn, in_use(unique(examples, *files), test), list_of(values))


class AnnotatedSource(DrawnSource):
    """Files, and the masks that are drawn from annotations; see `Source`.

    The mask of the image `1.jpg` of `annotations.json` is `annotations.json/1.jpg`.
    """

    def __init__(
        self, source: Source, annotations: Sequence[Annotations], values: dict[str, int]
    ) -> None:
        super().__init__(source)
        self._values = values
        self._annotations = {each.name: each for each in annotations}

    def file_of(self, name: str) -> str | None:
        """See `DrawnSource`; the file of annotations."""
        return next((file for file in self._annotations if name.startswith(f"{file}/")), None)

    def draw(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """See `DrawnSource`."""
        file = self.file_of(name) or ""
        return self._annotations[file].open(name[len(file) + 1 :], self._values)


def _examples(annotations: Annotations, names: Names) -> Iterator[Example]:
    """Each image with the mask that is drawn for it."""
    folder, file = posixpath.split(annotations.name)
    named = _PART.fullmatch(file.removesuffix(SUFFIX))
    part = part_of([named[1]] if named else folder.split("/"))
    folders = _folders(folder, file)
    for image in annotations.images:
        places = [posixpath.normpath(posixpath.join(each, image)) for each in folders]
        place = next((each for each in places if names.find(each) is not None), places[0])
        yield Example(place, Mask(f"{annotations.name}/{image}"), part)


def _folders(folder: str, file: str) -> list[str]:
    """Where the images of a file of annotations may lie."""
    above, stem = posixpath.dirname(folder), file.removesuffix(SUFFIX)
    own = stem.partition("_")[2] or stem
    inner = ["", FOLDERS[0], own, posixpath.join(FOLDERS[0], own)]
    return list(
        dict.fromkeys(posixpath.join(each, sub) for each in (folder, above) for sub in inner)
    )
