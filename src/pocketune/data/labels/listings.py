"""Which tables of a folder list its photos, and the photos that one or several tables list."""

from __future__ import annotations

import posixpath
from itertools import chain
from typing import TYPE_CHECKING

from pocketune.data.examples import Example, Examples, unique
from pocketune.data.labels.columns import names_files
from pocketune.data.labels.layouts import PARTS, TRAIN, TestUse, in_use
from pocketune.data.labels.lists import read_list
from pocketune.data.labels.places import Places
from pocketune.data.labels.rows import JSON_LINES, is_table, read_rows
from pocketune.data.labels.tables import Table, read_table
from pocketune.errors import PocketuneError
from pocketune.files import shown
from pocketune.tasks.segmentation import Mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pocketune.data.names import Names
    from pocketune.data.sources import Source
    from pocketune.tasks import Task

_LABELS = ("labels", "train_labels", "trainlabels", "list_attr_celeba")
"""Names of the table of the labels, where there are others beside it, without the suffix."""


def choose_tables(source: Source, names: Names, prefix: str) -> list[str]:
    """The tables that list the photos of a folder; empty for none, or if it is not certain.

    It is the one table beside all folders, or in the one folder of all files. Of several, it is
    `labels.csv`, or `train.csv` with those of other parts that have the same columns, or the only
    one with a title of the column of files. Otherwise it is the one of each folder of a part, as
    `train/metadata.jsonl`.

    Args:
        source: The files.
        names: Their names.
        prefix: The folder around everything, with its slash.
    """
    tables = [name for name in names if is_table(name)]
    beside = _beside(tables, prefix)
    if len(beside) > 1:
        return _main_tables(source, beside)
    if beside or (tables and len(names.folders()[0]) == 1):
        return beside or tables[: len(tables) == 1]
    places = {name: posixpath.dirname(name)[len(prefix) :].casefold() for name in tables}
    inside = [name for name in tables if places[name] in PARTS]
    return inside if len({places[name] for name in inside}) == len(inside) else []


def tables_of_files(source: Source, names: Sequence[str], prefix: str) -> list[str]:
    """The tables beside all folders that have a title of the column of files; see `choose_tables`.

    Where there are several and none is chosen, each of them may be the one that is meant.
    """
    tables = [name for name in names if is_table(name)]
    return _of_files(source, _beside(tables, prefix))


def _beside(tables: Sequence[str], prefix: str) -> list[str]:
    beside = [name for name in tables if "/" not in name[len(prefix) :]]
    return [name for name in beside if not name.lower().endswith(JSON_LINES)] or beside


def _of_files(source: Source, tables: Sequence[str]) -> list[str]:
    return [name for name in tables if names_files(_titles(source, name))]


def _main_tables(source: Source, tables: Sequence[str]) -> list[str]:
    labels = [name for name in tables if _stem(name) in _LABELS]
    train = [name for name in tables if PARTS.get(_stem(name)) == TRAIN]
    if not labels + train:  # others may be results, of an evaluation for example
        listing = _of_files(source, tables)
        return listing if len(listing) == 1 else []
    if len(labels + train) != 1:
        return []
    if labels:
        return labels
    titles = _titles(source, train[0])
    parts = (name for name in tables if _stem(name) in PARTS)
    return [name for name in parts if _titles(source, name) == titles]


def read_tables(
    source: Source,
    tables: Sequence[str],
    tasks: Sequence[type[Task]],
    test: TestUse,
    names: Names | None = None,
) -> Table:
    """The labeled files that tables list, with the folder of each table.

    Args:
        source: The files.
        tables: One table, or one of each part, which the table or its folder is named after.
        tasks: Tasks to try; the first one that recognizes the columns reads them.
        test: What the photos of `test` are for.
        names: All files of the source; None to list them if they are needed.

    Raises:
        PocketuneError: See `read_table`; or the tables have different columns.
    """
    found: list[Table] = []
    for name in tables:
        folder = posixpath.dirname(name)
        part = None
        if len(tables) > 1:
            part = PARTS.get(_stem(name)) or PARTS.get(posixpath.basename(folder).casefold())
        places, data = Places(source, name, names), read_list(source, name)
        table = read_table(data, name, tasks, part=part, places=places)
        if found and table[1:] != found[0][1:]:
            raise PocketuneError(
                f"{shown(tables[0])} and {shown(name)} have different columns of labels; give both "
                "the same"
            )
        if folder:
            table = table._replace(examples=Examples(_within(folder, table.examples)))
        found.append(table)
    examples = found[0].examples
    if len(found) > 1:
        joined = chain.from_iterable(table.examples for table in found)
        examples = unique(Examples(joined), *tables)
    return found[0]._replace(examples=in_use(examples, test).sorted())


def _stem(name: str) -> str:
    return posixpath.splitext(posixpath.basename(name))[0].casefold()


def _titles(source: Source, name: str) -> list[str]:
    _, first = next(read_rows(read_list(source, name), name), (0, []))
    return first


def _within(folder: str, examples: Examples) -> Iterator[Example]:
    """Examples whose files are relative to a folder."""
    for example in examples:
        label = example.label
        if isinstance(label, Mask):
            label = label._replace(name=_joined(folder, label.name))
        yield example._replace(name=_joined(folder, example.name), label=label)


def _joined(folder: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(folder, name))
