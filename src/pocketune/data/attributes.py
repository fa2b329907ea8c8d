"""Attributes of images, from the columns of a table: 1 for those that an image has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.data.layouts.folders import Example, as_label
from pocketune.errors import PocketuneError
from pocketune.files import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MINUS_ONE = 255
_CODES = {"0": 0, "1": 1, "-1": _MINUS_ONE}
_ABSENT = bytes.maketrans(bytes([_MINUS_ONE]), bytes([0]))


def attribute_columns(titles: Sequence[str], others: Iterable[int], name: str) -> dict[str, int]:
    """Positions of the attributes by their names.

    Args:
        titles: of all columns.
        others: positions of the columns that are no attributes.
        name: the table's name, for messages.

    Raises:
        PocketuneError: for a column without a title, or two with the same.
    """
    columns: dict[str, int] = {}
    for position in sorted(set(range(len(titles))) - set(others)):
        title = as_label(titles[position])
        if not title:
            raise PocketuneError(
                f"{shown(name)} has no title over column {position + 1}; name the attribute or "
                "remove the column"
            )
        if title in columns:
            raise PocketuneError(f"{shown(name)} has two columns {shown(title)!r}; keep one")
        columns[title] = position
    return columns


def read_attributes(row: Sequence[str], line: int, columns: Mapping[str, int], name: str) -> bytes:
    """A byte for each attribute: 0, 1, or 255 for -1.

    Raises:
        PocketuneError: for any other value, or none.
    """
    try:
        return bytes(_CODES[row[position]] for position in columns.values())
    except (KeyError, IndexError):
        pass
    for title, position in columns.items():
        value = row[position] if position < len(row) else ""
        if not value:
            raise PocketuneError(
                f"{shown(name)} has no value for {shown(title)!r} in line {line}; add it"
            )
        if value not in _CODES:
            break
    raise PocketuneError(
        f"{shown(name)} has {shown(value)!r} for {shown(title)!r} in line {line}: write 1 for an "
        "attribute that an image has and 0 or -1 otherwise; for classes, name the columns file "
        "and label"
    )


def one_notation(examples: Sequence[Example], name: str) -> list[Example]:
    """The same examples with 0 for every absent attribute, which a table writes as 0 or as -1.

    Raises:
        PocketuneError: for a table that has both, for one of them might mean something else.
    """
    if {0, _MINUS_ONE} <= set().union(*(example.attributes for example in examples)):
        raise PocketuneError(
            f"{shown(name)} has both 0 and -1 for absent attributes; write one of them throughout"
        )
    return [
        example._replace(attributes=example.attributes.translate(_ABSENT)) for example in examples
    ]
