"""Read which images there are and their labels: from class folders, or from a CSV.

Class folders are `cats/1.jpg`, or `train/cats/1.jpg` and `val/cats/2.jpg`. A CSV lists files,
and its other columns are those that a task reads.
"""

from __future__ import annotations

import csv
import io
import posixpath
import re
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pocketune.data.examples import Example, Examples, Repeated
from pocketune.data.names import Names
from pocketune.errors import PocketuneError, Remedy
from pocketune.files import shown
from pocketune.tasks.base import TASKS, as_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pocketune.tasks import Task
    from pocketune.tasks.base import RowReader

TRAIN, VALIDATION, TEST = "train", "val", "test"
PARTS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation"), VALIDATION),
    **dict.fromkeys(("test", "testing"), TEST),
}
"""The parts that users divide their photos into, by the names that these have."""

TestUse = Literal["hold out", "only", "validate"]
"""What the photos of `test` are for: no run sees them; they are the only ones to load, as
validation photos; or they validate if there are no others, as in an evaluation."""

FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "image_id")
UNTITLED = ("file", "label")  # the columns of a table without titles
CELEBA = "list_attr_celeba.txt"
_COCO = re.compile(r"(annotations|_annotations\.coco|instances_\w+)\.json", re.IGNORECASE)

_Row = tuple[int, list[str]]  # line number, and cells without surrounding spaces


def in_use(examples: Iterable[Example], test: TestUse = "hold out") -> Examples:
    """The examples of the parts that are to be loaded."""
    packed = examples if isinstance(examples, Examples) else Examples(examples)
    present = packed.parts.distinct()
    if test == "only":
        return packed.of_parts([TEST])
    if test == "hold out" or VALIDATION in present:
        present = [part for part in present if part != TEST]
    return packed.of_parts(present)


def in_class_folders(names: Sequence[str]) -> tuple[Examples, Names]:
    """The examples among `names`, of all parts: every file in a class folder, at any depth.

    Since "train" or "valid" may also be the name of a class, `train` is a part only if it holds
    class folders or is next to another part. The others are parts only next to a `train`.

    Args:
        names: File names with forward slashes, relative to the root.

    Returns:
        The examples, and the files outside the class folders or outside the parts.
    """
    packed = names if isinstance(names, Names) else Names(names)
    places, numbers = packed.folders()
    read = _labels(places)
    known = np.array([found is not None for found in read], bool)[numbers]
    kept = numbers[known]
    labels, parts = (
        Repeated.of(found and found[field] for found in read).take(kept) for field in (0, 1)
    )
    inside = Examples.of(packed.take(np.flatnonzero(known)), labels, parts)
    return inside, packed.take(np.flatnonzero(~known))


def _labels(places: Sequence[str]) -> list[tuple[str, str | None] | None]:
    """The class and the part of the files in each of these folders; None outside of classes."""
    prefix = wrapper_of(places)
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


def folders(names: Sequence[str]) -> list[str]:
    """The folders that files are in; the root is empty."""
    return (names if isinstance(names, Names) else Names(names)).folders()[0]


def wrapper(names: Sequence[str]) -> str:
    """The path, with its slash, of the folder that contains everything, as in many archives.

    It is empty if the root holds more than one folder, or if the folder is the only class.
    """
    return wrapper_of(folders(names))


def wrapper_of(places: Collection[str]) -> str:
    """The same, from the folders that files are in."""
    prefix, left = "", set(places)
    while any("/" in place for place in left) and len(tops := {_top(place) for place in left}) == 1:
        top = tops.pop() + "/"
        prefix, left = prefix + top, {place[len(top) :] for place in left}
    return prefix


def _top(place: str) -> str:
    return place.partition("/")[0]


class Table(NamedTuple):
    """The examples of a table, the task that reads them, and the titles of the task's columns."""

    examples: Examples
    task: type[Task]
    titles: tuple[str, ...] = ()


class _Columns(NamedTuple):
    """Positions of the file and split columns, and the reader of the label."""

    file: int
    split: int | None
    task: type[Task]
    label: RowReader


def is_table(name: str) -> bool:
    """Whether `read_table` can read a file: a CSV or TSV, or CelebA's list of attributes."""
    return name.lower().endswith((".csv", ".tsv")) or posixpath.basename(name) == CELEBA


def is_annotations(name: str) -> bool:
    """Whether a file has the name of annotations in COCO's format."""
    return _COCO.fullmatch(posixpath.basename(name)) is not None


def has_folder(names: Sequence[str], wanted: Iterable[str]) -> bool:
    """Whether any file is in a folder of one of these names, at any depth and in any case."""
    parts = {part.casefold() for folder in folders(names) for part in folder.split("/")}
    return not parts.isdisjoint(wanted)


def read_table(
    data: bytes, name: str, tasks: Sequence[type[Task]], test: TestUse = "hold out"
) -> Table:
    """The examples that a CSV lists, in its order.

    The first line names the columns: `file`; `split` (train, val or test) if the data is
    divided; and the columns of a task. For classification this is `label`, for segmentation it is
    `mask`, the file of the mask, and other columns are ignored. Otherwise every column is an
    attribute, 1 for files that have it and 0 (or -1) for the others. Without such a line, the two
    columns are file and label. The separator is a comma, a semicolon or a tab. Files are relative
    to the CSV's folder.

    CelebA's own `list_attr_celeba.txt` can be read too: one line with a number, one with the
    names of the attributes, and then the files. Its columns are separated by spaces.

    Args:
        data: The file's bytes, UTF-8.
        name: The file's name, for messages.
        tasks: Tasks to try; the first one that recognizes the columns reads them.
        test: What the photos of `test` are for.

    Raises:
        PocketuneError: A column or value is missing, the task refuses a label, a file is listed
            twice and differently, or the text is not a CSV.
    """
    rows = _celeba_rows(data, name) if name.endswith(CELEBA) else _rows(data, name)
    line, first = next(rows, (0, []))
    if not first:
        raise PocketuneError(f"{shown(name)} is empty; list a file and its label on each line")
    columns = _titled(first, name, tasks)
    if columns is None and len(first) == 2 and "." in first[0]:  # a file name, not a title
        columns, rows = _titled(UNTITLED, name, tasks), chain([(line, first)], rows)
    if columns is None:
        wanted = ", or ".join(task.table for task in tasks)
        message = f"{shown(name)} needs the columns {wanted}, but its first line has "
        message += shown(", ".join(first))
        if (other := _other_task(first, name, tasks)) is not None:
            raise PocketuneError(message, remedy=_kit_for(other))
        raise PocketuneError(f"{message}; rename its columns")
    examples = Examples(_example(row, line, columns, name) for line, row in rows)
    return Table(_unique(in_use(examples, test), name), columns.task, columns.label.titles)


def has_titles(data: bytes, name: str, tasks: Sequence[type[Task]]) -> bool:
    """Whether the first line of a CSV names the columns of one of these tasks.

    Raises:
        PocketuneError: The text is not a CSV.
    """
    _, first = next(_rows(data, name), (0, []))
    return _titled(first, name, tasks) is not None


def _rows(data: bytes, name: str) -> Iterator[_Row]:
    """The lines that are not blank, one at a time because a table of attributes may be long."""
    try:
        first = data.partition(b"\n")[0].decode("utf-8-sig")
        separator = max(",;\t", key=first.count)
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=separator)
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise PocketuneError(
            f"{shown(name)} is not a CSV in UTF-8 ({error}); save it as one"
        ) from error


def _celeba_rows(data: bytes, name: str) -> Iterator[_Row]:
    """The lines of CelebA's list, in the form of a CSV's."""
    lines = enumerate(io.TextIOWrapper(io.BytesIO(data), "utf-8", "replace"), 1)
    rows = ((number, line.split()) for number, line in lines if line.strip())
    _, count = next(rows, (0, []))
    line, attributes = next(rows, (0, []))
    if len(count) != 1 or not count[0].isdecimal() or not attributes:
        raise PocketuneError(
            f"{shown(name)} is not CelebA's list of attributes, whose first line is the number of "
            "images and whose second their names; copy it again"
        )
    return chain([(line, [FILE_COLUMNS[0], *attributes])], rows)


def _kit_for(task: type[Task]) -> Remedy:
    """What to do with labels of a task that the kit does not learn."""
    if task.dense:
        return Remedy("masks", "use a kit for masks")
    if task.has_folders:
        return Remedy("classes", "use a kit for classes")
    return Remedy("other task", "use a kit for these labels")


def _other_task(first: Sequence[str], name: str, tasks: Sequence[type[Task]]) -> type[Task] | None:
    """The task that a table seems to be made for, which these tasks cannot read; None without.

    A single column of any name may be an attribute, but is more often a label.
    """
    several = len(first) > 2
    others = [
        task
        for task in TASKS.values()
        if task not in tasks and (task.dense or task.has_folders or several)
    ]
    found = _titled(first, name, others)
    return None if found is None else found.task


def _titled(first: Sequence[str], name: str, tasks: Sequence[type[Task]]) -> _Columns | None:
    """The columns if `first` holds titles that a task recognizes; else None."""
    titles = [cell.casefold().replace(" ", "_") for cell in first]
    file = next((titles.index(title) for title in FILE_COLUMNS if title in titles), None)
    split = titles.index("split") if "split" in titles else None
    if file is None:
        return None
    free = [position for position in range(len(first)) if position not in (file, split)]
    for task in tasks:
        reader = task.columns(first, free, name)
        if reader is not None:
            return _Columns(file, split, task, reader)
    return None


def _example(row: Sequence[str], line: int, columns: _Columns, name: str) -> Example:
    def cell(column: str, position: int) -> str:
        value = row[position] if position < len(row) else ""
        if not value:
            raise PocketuneError(f"{shown(name)} has no {column} in line {line}; add it")
        return value

    part = None
    if columns.split is not None:
        split = cell("split", columns.split).casefold()
        part = PARTS.get(split)
        if part is None:
            raise PocketuneError(
                f"{shown(name)} has the split {shown(split)!r} in line {line}; write train, val or "
                "test"
            )
    file = posixpath.normpath(cell("file", columns.file).replace("\\", "/"))
    return Example(file, columns.label(row, line), part)


def _unique(examples: Examples, name: str) -> Examples:
    """Each file once; the lines of a file that is listed twice have to agree."""
    hashes = np.fromiter(map(hash, examples.names), np.int64, len(examples))
    values, counts = np.unique(hashes, return_counts=True)
    if len(values) == len(examples):
        return examples
    found: dict[str, Example] = {}
    repeated = []
    for index in np.flatnonzero(np.isin(hashes, values[counts > 1])).tolist():
        example = examples[index]
        first = found.setdefault(example.name, example)
        if first != example:
            raise PocketuneError(
                f"{shown(name)} lists {shown(example.name)} twice, with different labels or "
                "splits; keep one line"
            )
        if first is not example:
            repeated.append(index)
    return examples.take(np.setdiff1d(np.arange(len(examples)), repeated))
