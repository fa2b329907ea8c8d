"""Labels from a CSV of file and label."""

from __future__ import annotations

import csv
import io
import posixpath
from typing import TYPE_CHECKING

from pocketune.data.example import PARTS, Example, as_label, one_validation
from pocketune.data.skipped import shown
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE_COLUMNS = ("file", "filename", "file_name", "path", "image")
LABEL_COLUMNS = ("label", "class")


def read_table(data: bytes, name: str) -> list[Example]:
    """The examples that a CSV lists, in its order.

    The first line names the columns: ``file`` and ``label``, and ``split`` (train, val or test)
    where the data is divided; other columns are ignored. Without such a line, the two columns are
    file and label. Commas, semicolons and tabs separate. Files are relative to the CSV's folder.

    Args:
        data: the file's bytes, UTF-8.
        name: the file's name, for messages.

    Raises:
        PocketuneError: for a missing column or value, a file with two labels, or other text.
    """
    rows = _rows(data, name)
    if not rows:
        raise PocketuneError(f"{shown(name)} is empty; list a file and its label on each line")
    first = rows[0][1]
    columns = _titled(first)
    if columns is not None:
        rows = rows[1:]
    elif len(first) == 2 and "." in first[0]:  # a file name already
        columns = {"file": 0, "label": 1}
    else:
        raise PocketuneError(
            f"{shown(name)} needs the columns file and label, but its first line has "
            f"{shown(', '.join(first))}"
        )
    examples = [_example(row, line, columns, name) for line, row in rows]
    return _unique(one_validation(examples), name)


def _rows(data: bytes, name: str) -> list[tuple[int, list[str]]]:
    """Line numbers and stripped cells of the lines that are not blank."""
    try:
        text = data.decode("utf-8-sig")
        first = text.partition("\n")[0]
        separator = max(",;\t", key=first.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise PocketuneError(
            f"{shown(name)} is not a CSV in UTF-8 ({error}); save it as one"
        ) from error
    return [(line, row) for line, row in rows if any(row)]


def _titled(first: list[str]) -> dict[str, int] | None:
    """Positions of the columns if ``first`` holds their titles, or ``None``."""
    titles = [cell.casefold() for cell in first]
    file = next((titles.index(title) for title in FILE_COLUMNS if title in titles), None)
    label = next((titles.index(title) for title in LABEL_COLUMNS if title in titles), None)
    if file is None or label is None:
        return None
    split = {"split": titles.index("split")} if "split" in titles else {}
    return {"file": file, "label": label, **split}


def _example(row: list[str], line: int, columns: Mapping[str, int], name: str) -> Example:
    def cell(column: str) -> str:
        value = row[columns[column]] if columns[column] < len(row) else ""
        if not value:
            raise PocketuneError(f"{shown(name)} has no {column} in line {line}; add it")
        return value

    part = cell("split").casefold() if "split" in columns else None
    if part is not None and part not in PARTS:
        raise PocketuneError(
            f"{shown(name)} has the split {shown(part)!r} in line {line}; write train or val"
        )
    file = posixpath.normpath(cell("file").replace("\\", "/"))
    return Example(file, as_label(cell("label")), part)


def _unique(examples: Iterable[Example], name: str) -> list[Example]:
    """Each file once; a file that is listed twice may not contradict itself."""
    found: dict[str, Example] = {}
    for example in examples:
        if found.setdefault(example.name, example) != example:
            raise PocketuneError(
                f"{shown(name)} lists {shown(example.name)} twice, with different labels or "
                "splits; keep one line"
            )
    return list(found.values())
