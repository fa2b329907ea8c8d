"""Read which images there are from files of annotations in COCO's format, and draw their masks.

Such a file is `annotations.json`, `_annotations.coco.json` or `instances_train2017.json`, or
any that a user names. It lies beside the images, or in a folder beside theirs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from pocketune.data.annotations import BACKGROUND, Annotations
from pocketune.data.examples import Example, Examples
from pocketune.data.layouts import PARTS, TestUse, in_use
from pocketune.data.names import Names
from pocketune.data.pairs import FOLDERS
from pocketune.data.sources import Source
from pocketune.errors import PocketuneError
from pocketune.files import reading, shown
from pocketune.tasks.segmentation import Mask

SUFFIX = ".json"
_PART = re.compile(rf"instances_({'|'.join(PARTS)})\d*", re.IGNORECASE)
_MOST = 254
"""Categories that masks have values for, beside the background and what is ignored."""


class Annotated(NamedTuple):
    """The images of files of annotations.

    Attributes:
        source: The files, with a mask for each image.
        examples: The images, with the masks as labels.
        names: The names of the values of the masks, as in `classes.txt`.
    """

    source: AnnotatedSource
    examples: Examples
    names: bytes


def read_annotations(
    files: Sequence[str], names: Names, source: Source, test: TestUse = "hold out"
) -> Annotated:
    """The images that files of annotations list.

    The background has the value 0, and the categories that have an object those from 1 on. Those of
    one name are one class, in all files together.

    Args:
        files: The files. A part, such as `train`, is named by a folder around the file, or by
            the file: `instances_train2017.json`.
        names: All files of the source, sorted.
        source: The files.
        test: What the images of `test` are for.

    Raises:
        PocketuneError: A file cannot be read or is damaged, or there are more categories than
            masks have values for.
    """
    read = []
    for file in files:
        with reading(shown(file)), source.open(file) as stream:
            read.append(Annotations(stream, file))
    labels = dict.fromkeys([BACKGROUND, *(label for each in read for label in each.categories)])
    if len(labels) - 1 > _MOST:
        raise PocketuneError(
            f"{shown(files[0])} has objects of {len(labels) - 1} categories, but masks have values "
            f"for {_MOST}; merge some of them"
        )
    drawn = AnnotatedSource(source, read, {label: value for value, label in enumerate(labels)})
    examples = Examples(example for each in read for example in _examples(each, names))
    listed = "".join(f"{value}={label}\n" for value, label in enumerate(labels))
    return Annotated(drawn, in_use(examples, test), listed.encode())


class AnnotatedSource:
    """Files, and the masks that are drawn from annotations; see `Source`.

    The mask of the image `1.jpg` of `annotations.json` is `annotations.json/1.jpg`.
    """

    def __init__(
        self, source: Source, annotations: Sequence[Annotations], values: dict[str, int]
    ) -> None:
        self._source, self._values = source, values
        self._annotations = {each.name: each for each in annotations}

    @property
    def root(self) -> Path:
        """See `Source`."""
        return self._source.root

    def names(self) -> Names:
        """See `Source`."""
        return self._source.names()

    def empty_folders(self) -> list[str]:
        """See `Source`."""
        return self._source.empty_folders()

    def beginning(self, name: str, size: int) -> bytes:
        """See `Source`."""
        return self._source.beginning(name, size)

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """See `Source`."""
        file = self._file(name)
        if file is None:
            with self._source.open(name) as opened:
                yield opened
            return
        with self._annotations[file].open(name[len(file) + 1 :], self._values) as mask:
            yield mask

    def stamp(self, name: str) -> tuple[int, ...]:
        """See `Source`; a mask changes with its file of annotations."""
        return self._source.stamp(self._file(name) or name)

    def _file(self, name: str) -> str | None:
        """The file of annotations that a mask is drawn from."""
        return next((file for file in self._annotations if name.startswith(f"{file}/")), None)


def _examples(annotations: Annotations, names: Names) -> Iterator[Example]:
    """Each image with the mask that is drawn for it."""
    folder, file = posixpath.split(annotations.name)
    named = _PART.fullmatch(file.removesuffix(SUFFIX))
    places = [named[1]] if named else folder.split("/")
    inside = [PARTS[each.casefold()] for each in places if each.casefold() in PARTS]
    part = inside[-1] if inside else None
    folders = _folders(folder, file)
    for image in annotations.images:
        places = [posixpath.normpath(posixpath.join(each, image)) for each in folders]
        place = next((each for each in places if names.find(each) is not None), places[0])
        yield Example(place, Mask(f"{annotations.name}/{image}"), part)


def _folders(folder: str, file: str) -> list[str]:
    """Where the images of a file of annotations may lie."""
    above, own = posixpath.dirname(folder), file.removesuffix(SUFFIX).partition("_")[2]
    inner = ["", FOLDERS[0], own, posixpath.join(FOLDERS[0], own)]
    return list(
        dict.fromkeys(posixpath.join(each, sub) for each in (folder, above) for sub in inner)
    )
