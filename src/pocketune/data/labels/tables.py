"""Read which images there are and their labels from a table: a CSV or JSON lines.

A table lists files, and its other columns are those that a task reads.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pocketune.data.examples import Example, Examples, unique
from pocketune.data.labels.columns import Columns, Text, find_columns, titled
from pocketune.data.labels.layouts import PARTS
from pocketune.data.labels.places import Places, tidy
from pocketune.data.labels.rows import read_rows
from pocketune.errors import PocketuneError
from pocketune.files import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pocketune.tasks import Task

_FEW = 8
"""Lines that show whether files lie where a table says."""
_SAMPLE = 64
"""Most lines, from all over a table, that show where its files lie if not."""


class Table(NamedTuple):
    """The examples of a table, the task that reads them, and the titles of the task's columns."""

    examples: Examples
    task: type[Task]
    titles: tuple[str, ...] = ()


def read_table(
    data: bytes,
    name: str,
    tasks: Sequence[type[Task]],
    *,
    part: str | None = None,
    places: Places | None = None,
) -> Table:
    """The examples that a table lists, in its order.

    The first line of a CSV names the columns: `file`; `split` (train, val or test) if the data is
    divided; and the columns of a task. For classification this is `label`, for segmentation it is
    `mask`, the file of the mask, and other columns are ignored. Otherwise every column is an
    attribute, 1 for files that have it and 0 (or -1) for the others. Without such a line, the two
    columns are file and label. The separator is a comma, a semicolon or a tab. Files are relative
    to the CSV's folder. With `places`, the columns may have other titles, see `find_columns`, and
    the files may lie in other folders and have a suffix, see `Places`.

    JSON lines, as `metadata.jsonl` of Hugging Face, have an object on each line, and the names of
    its members are the titles.

    CelebA's own `list_attr_celeba.txt` can be read too: one line with a number, one with the
    names of the attributes, and then the files. Its columns are separated by spaces.

    Args:
        data: The file's bytes, UTF-8.
        name: The file's name, for messages.
        tasks: Tasks to try; the first one that recognizes the columns reads them.
        part: The part of all files, if there is no column `split`.
        places: Where the files are looked for; None for where the table says.

    Raises:
        PocketuneError: A column or value is missing, the task refuses a label, a file is listed
            twice and differently, or the text is not a table.
    """
    rows = read_rows(data, name)
    _, first = next(rows, (0, []))
    if not first:
        raise PocketuneError(f"{shown(name)} is empty; list a file and its label on each line")

    def cells(position: int) -> Iterator[str]:
        lines = islice(read_rows(data, name), 1, None)
        return (row[position] for _, row in lines)

    few = [row for _, row in islice(read_rows(data, name), 1, 1 + _FEW)]
    columns = find_columns(Text(name, first, few, cells), tasks, places)
    if not columns.titled:
        rows = read_rows(data, name)
    place = tidy if places is None else places.of
    if places is not None and not places.are_names(islice(cells(columns.file), _FEW)):
        places.learn(_spread(cells(columns.file)), cells(columns.file))
    examples = Examples(_example(row, line, columns, name, part, place) for line, row in rows)
    return Table(unique(examples, name), columns.task, columns.label.titles)


def has_titles(data: bytes, name: str, tasks: Sequence[type[Task]]) -> bool:
    """Whether the first line of a table names the columns of one of these tasks.

    Raises:
        PocketuneError: The text is not a table.
    """
    _, first = next(read_rows(data, name), (0, []))
    return titled(first, name, tasks) is not None


def _spread(cells: Iterator[str]) -> list[str]:
    """Some of the cells, about equally far from each other; those without a name are left out."""
    kept: list[str] = []
    stride = 1
    for number, cell in enumerate(cells):
        if number % stride == 0 and cell:
            kept.append(cell)
            if len(kept) == _SAMPLE:
                kept, stride = kept[::2], 2 * stride
    return kept


def _example(
    row: Sequence[str],
    line: int,
    columns: Columns,
    name: str,
    part: str | None,
    place: Callable[[str], str],
) -> Example:
    def cell(column: str, position: int) -> str:
        value = row[position]
        if not value:
            raise PocketuneError(f"{shown(name)} has no {column} in line {line}; add it")
        return value

    if columns.split is not None:
        split = cell("split", columns.split).casefold()
        part = PARTS.get(split)
        if part is None:
            raise PocketuneError(
                f"{shown(name)} has the split {shown(split)!r} in line {line}; write train, val or "
                "test"
            )
    return Example(place(cell("file", columns.file)), columns.label(row, line), part)
