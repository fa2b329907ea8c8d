"""The lines of tables: of a CSV, of JSON lines, and of CelebA's list of attributes."""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError
from pocketune.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

CELEBA = "list_attr_celeba.txt"
JSON_LINES = ".jsonl"
_SUFFIXES = (".csv", ".tsv", JSON_LINES)

_QUOTED = re.compile(r'(^|[,;\t]) *"(?:[^"]|"")*(?:"|$)')
"""Cells in quotes, whose separators are text, with what is before each."""

_SEPARATOR = re.compile("sep=([,;\t])", re.IGNORECASE)

Row = tuple[int, list[str]]
"""A line number, and cells without surrounding spaces."""


def is_table(name: str) -> bool:
    """Whether a file is a CSV, a TSV or JSON lines by its name, or CelebA's list of attributes."""
    return name.lower().endswith(_SUFFIXES) or posixpath.basename(name) == CELEBA


def read_rows(data: bytes, name: str) -> Iterator[Row]:
    """The lines that are not blank, one at a time because a table may be long; titles come first.

    A line that is shorter than the first one is filled up with empty cells.

    Args:
        data: The file's bytes, UTF-8.
        name: The file's name, for messages; its suffix is that of `is_table`.

    Raises:
        PocketuneError: The text is not a table.
    """
    read = _csv
    if name.endswith(CELEBA):
        read = _celeba
    elif name.lower().endswith(JSON_LINES):
        read = _json_lines
    width = 0
    for line, cells in read(data, name):
        width = width or len(cells)
        yield line, cells + [""] * (width - len(cells))


def _csv(data: bytes, name: str) -> Iterator[Row]:
    try:
        first = data.partition(b"\n")[0].decode("utf-8-sig")
        separator = max(",;\t", key=_QUOTED.sub(r"\1", first).count)
        named = _SEPARATOR.fullmatch(first.rstrip())  # as Excel writes it
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")
        mark = named[1] if named else separator
        reader = csv.reader(text, delimiter=mark, skipinitialspace=True)
        for row in islice(reader, bool(named), None):
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield reader.line_num, cells
    except (UnicodeDecodeError, csv.Error) as error:
        raise PocketuneError(
            f"{shown(name)} is not a CSV in UTF-8 ({error}); save it as one"
        ) from error


def _json_lines(data: bytes, name: str) -> Iterator[Row]:
    """The members of each line's object, as cells; the names in the first line are the titles."""
    titles: list[str] = []
    try:
        for number, line in enumerate(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig"), 1):
            if not line.strip():
                continue
            record = json.loads(line)
            if not isinstance(record, dict):
                raise TypeError(f"line {number} is not an object")
            if not titles:
                titles = list(record)
                yield number, titles
            yield number, [_cell(record.get(title)) for title in titles]
    except (ValueError, TypeError, RecursionError) as error:
        raise PocketuneError(
            f"{shown(name)} does not have a JSON object on each line ({error}); save it again"
        ) from error


def _cell(value: Any) -> str:
    """A value as a CSV has it; nothing for lists and objects, which are not labels."""
    if isinstance(value, bool):
        return str(int(value))
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def _celeba(data: bytes, name: str) -> Iterator[Row]:
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
    return chain([(line, ["file", *attributes])], rows)
