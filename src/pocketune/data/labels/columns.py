"""Which columns of a table name photos, their labels and their division."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pocketune.data.labels.layouts import PARTS
from pocketune.errors import PocketuneError, Remedy
from pocketune.files import shown
from pocketune.tasks import TASKS
from pocketune.tasks.attributes import CODES, Attributes
from pocketune.tasks.classification import COLUMNS as LABELS
from pocketune.tasks.segmentation import COLUMN as MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pocketune.data.labels.places import Places
    from pocketune.tasks import Task
    from pocketune.tasks.base import RowReader

    _Reader = tuple[type[Task], RowReader]

FILES = ("file", "filename", "file_name", "path", "image", "image_id")
SPLIT = "split"
_LIKE_SPLIT = ("set", "data_set", "subset", "partition")
"""Titles of the column of parts if its cells are their names."""
UNTITLED = ("file", "label")
"""The columns of a table without titles, the other way round where photos are in the second."""


class Columns(NamedTuple):
    """Positions of the file and split columns, and the reader of the label.

    Attributes:
        titled: Whether the first line has titles, and not a file and its label.
    """

    file: int
    split: int | None
    task: type[Task]
    label: RowReader
    titled: bool = True


class Text(NamedTuple):
    """A table's text, as far as its columns depend on it.

    Attributes:
        name: The table's name, for messages.
        first: The cells of its first line.
        sample: The next few lines.
        column: All cells of a column, without the first.
    """

    name: str
    first: Sequence[str]
    sample: Sequence[Sequence[str]]
    column: Callable[[int], Iterable[str]]

    def cells(self, position: int) -> list[str]:
        """What the sample has in a column."""
        return [row[position] for row in self.sample if row[position]]


def find_columns(text: Text, tasks: Sequence[type[Task]], places: Places | None) -> Columns:
    """The columns of a table.

    The column of the photos has one of the titles `FILES`. Without one, it is the only one whose
    cells name photos. Where one column is left, which no task knows by its title, it holds classes.
    So it does in a table of two columns without titles.

    Raises:
        PocketuneError: There are no such columns, or more than one.
    """
    first, name = text.first, text.name
    columns = titled(first, name, tasks, text)
    if columns is None and len(first) == 2 and "." in first[0]:  # a file name, not a title
        columns = _untitled(name, tasks)
    if columns is None and places is not None and text.sample:
        columns = _by_photos(text, tasks, places)
    if columns is not None:
        return columns
    wanted = ", or ".join(task.table for task in tasks)
    message = f"{shown(name)} needs the columns {wanted}, but its first line has "
    message += shown(", ".join(first))
    if (other := _other_task(first, name, tasks)) is not None:
        raise PocketuneError(message, remedy=_kit_for(other))
    raise PocketuneError(f"{message}; rename its columns")


def titled(
    first: Sequence[str], name: str, tasks: Sequence[type[Task]], text: Text | None = None
) -> Columns | None:
    """The columns if `first` holds titles that a task recognizes; else None.

    With `text`, a single column of another title may hold classes.
    """
    file = _file(first)
    return None if file is None else _labeled(first, file, name, tasks, text)


def names_files(first: Sequence[str]) -> bool:
    """Whether the first line of a table has a title of the column of files."""
    return _file(first) is not None


def _file(first: Sequence[str]) -> int | None:
    titles = _plain(first)
    return next((titles.index(title) for title in FILES if title in titles), None)


def _labeled(
    first: Sequence[str], file: int, name: str, tasks: Sequence[type[Task]], text: Text | None
) -> Columns | None:
    """The columns of a table whose column of files is known."""
    titles = _plain(first)
    split = _split(titles, text)
    free = [position for position in range(len(first)) if position not in (file, split)]
    found = _first(tasks, first, free, name)
    if text is not None and len(free) == 1 and _may_hold_classes(free[0], found, text):
        renamed = list(first)
        renamed[free[0]] = LABELS[0]
        folders = [task for task in tasks if task.has_folders]
        found = _first(folders, renamed, free, name) or found
    return None if found is None else Columns(file, split, *found)


def _split(titles: Sequence[str], text: Text | None) -> int | None:
    """The column of the parts."""
    if SPLIT in titles:
        return titles.index(SPLIT)
    for number, title in enumerate(titles):
        if text is not None and title in _LIKE_SPLIT:
            cells = text.cells(number)
            if cells and all(cell.casefold() in PARTS for cell in cells):
                return number
    return None


def _may_hold_classes(column: int, found: _Reader | None, text: Text) -> bool:
    """Whether a column without a known title is not of masks, and not an attribute."""
    if found is None:
        return text.first[column].casefold() != MASK
    return found[0] is Attributes and not all(cell in CODES for cell in text.column(column) if cell)


def _first(
    tasks: Iterable[type[Task]], titles: Sequence[str], free: Sequence[int], name: str
) -> _Reader | None:
    """The first task that recognizes the columns, and its reader."""
    readers = ((task, task.columns(titles, free, name)) for task in tasks)
    return next(((task, reader) for task, reader in readers if reader is not None), None)


def _untitled(
    name: str, tasks: Sequence[type[Task]], titles: tuple[str, str] = UNTITLED
) -> Columns | None:
    columns = titled(titles, name, tasks)
    return None if columns is None else columns._replace(titled=False)


def _by_photos(text: Text, tasks: Sequence[type[Task]], places: Places) -> Columns | None:
    """The columns of a table without a known title of files, by the photos that its cells name."""
    taken = (SPLIT, MASK, *LABELS)
    free = [number for number, title in enumerate(_plain(text.first)) if title not in taken]
    named = places.are_photos([text.cells(each) for each in free])
    found = [each for each, is_named in zip(free, named, strict=True) if is_named]
    if len(found) > 1:
        one, other = (text.first[each] for each in found[:2])
        raise PocketuneError(
            f"{shown(text.name)} names photos in the columns {shown(one)} and {shown(other)}; "
            f"rename one of them to {FILES[0]}"
        )
    if not found:
        return None
    (file,) = found
    if places.are_photos([[text.first[file]]])[0]:  # the first line has no titles
        if len(text.first) != 2:
            return None
        return _untitled(text.name, tasks, UNTITLED if file == 0 else UNTITLED[::-1])
    return _labeled(text.first, file, text.name, tasks, text)


def _plain(first: Sequence[str]) -> list[str]:
    return [cell.casefold().replace(" ", "_") for cell in first]


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
    found = titled(first, name, others)
    return None if found is None else found.task


def _kit_for(task: type[Task]) -> Remedy:
    """What to do with labels of a task that the kit does not learn."""
    if task.dense:
        return Remedy("masks", "use a kit for masks")
    if task.has_folders:
        return Remedy("classes", "use a kit for classes")
    return Remedy("other task", "use a kit for these labels")
