"""Read which images there are and their classes from folders of classes.

Class folders are `cats/1.jpg`, or `train/cats/1.jpg` and `val/cats/2.jpg`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import numpy as np

from pocketune.data.examples import Examples, Repeated
from pocketune.data.labels.rows import is_table
from pocketune.tasks.base import as_label

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

    from pocketune.data.names import Names

TRAIN, VALIDATION, TEST = "train", "val", "test"
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), TEST),
}
"""The parts that users divide their photos into, by the names that these have (those that Hugging
Face's `datasets` knows)."""

TestUse = Literal["hold out", "only", "validate"]
"""What the photos of `test` are for: no run sees them; they are the only ones to load, as
validation photos; or they validate if there are no others, as in an evaluation."""

_OF_PHOTOS = re.compile(
    rf"(({'|'.join(PARTS)})[-_ ]?)?(images?|imgs?|photos?|pictures?)?", re.IGNORECASE
)


def in_use(examples: Examples, test: TestUse = "hold out") -> Examples:
    """The examples of the parts that are to be loaded."""
    present = examples.parts.distinct()
    if test == "only":
        return examples.of_parts([TEST])
    if test == "hold out" or VALIDATION in present:
        present = [part for part in present if part != TEST]
    return examples.of_parts(present)


def in_class_folders(names: Names) -> tuple[Examples, Names]:
    """The examples among `names`, of all parts: every file in a class folder, at any depth.

    Since "train" or "valid" may also be the name of a class, `train` is a part only if it holds
    class folders or is next to another part. The others are parts only next to a `train`.

    Args:
        names: File names with forward slashes, relative to the root.

    Returns:
        The examples, and the files outside the class folders or outside the parts.
    """
    places, numbers = names.folders()
    with_tables = {name.rpartition("/")[0] for name in names if is_table(name)}
    read = _labels(places, _around(places, with_tables))  # notes may lie beside the folder
    known = np.array([found is not None for found in read], bool)[numbers]
    kept = numbers[known]
    labels, parts = (
        Repeated.of(found and found[field] for found in read).take(kept) for field in (0, 1)
    )
    inside = Examples.of(names.take(np.flatnonzero(known)), labels, parts)
    return inside, names.take(np.flatnonzero(~known))


def _labels(places: Sequence[str], prefix: str) -> list[tuple[str, str | None] | None]:
    """The class and the part of the files in each of these folders; None outside of classes.

    `prefix` is the path, with its slash, of the folder that contains the class folders or parts.
    """
    paths = [
        place[len(prefix) :].split("/") if len(place) >= len(prefix) else [] for place in places
    ]
    paths = [[] if path == [""] else path for path in paths]
    tops = {path[0].casefold() for path in paths if path}
    nested = any(PARTS.get(path[0].casefold()) == TRAIN for path in paths if len(path) > 1)
    parts = {PARTS[top] for top in tops if top in PARTS}
    divided = nested or (TRAIN in parts and len(parts) > 1)

    def label(path: list[str]) -> tuple[str, str | None] | None:
        if not divided:
            return (as_label(path[0]), None) if path else None
        part = PARTS.get(path[0].casefold()) if path else None
        return (as_label(path[1]), part) if part and len(path) > 1 else None

    return [label(path) for path in paths]


def are_of_photos(folders: Iterable[Hashable]) -> bool:
    """Whether all folders are named after photos, as `train_images`, and none after a class."""
    return all(_OF_PHOTOS.fullmatch(str(folder)) for folder in folders)


def part_of_photos(folder: str) -> str | None:
    """The part that the name of a folder of photos tells, as `train_images` does; None without."""
    named = _OF_PHOTOS.fullmatch(folder)
    return PARTS.get(named[2].casefold()) if named and named[2] else None


def wrapper(names: Names) -> str:
    """The path, with its slash, of the folder that contains everything, as in many archives.

    It is empty if the root holds more than one folder, or if the folder is the only class.
    """
    places, _ = names.folders()
    return _around(places, places)


def _around(places: Collection[str], last: Collection[str]) -> str:
    """The folder around these, at most the first of `last` on the way; others may have files."""
    prefix = ""
    while True:
        inside = {place[len(prefix) :] for place in places if place.startswith(prefix)} - {""}
        tops = {place.partition("/")[0] for place in inside}
        if len(tops) != 1 or inside == tops or prefix.removesuffix("/") in last:
            return prefix
        prefix += tops.pop() + "/"


def has_folder(names: Names, wanted: Iterable[str]) -> bool:
    """Whether any file is in a folder of one of these names, at any depth and in any case."""
    parts = {part.casefold() for folder in names.folders()[0] for part in folder.split("/")}
    return not parts.isdisjoint(wanted)
