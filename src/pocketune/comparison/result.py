"""The result of a comparison: all its cells, in compare.json and tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.comparison.cell import Cell
from pocketune.comparison.row import Row
from pocketune.comparison.tables import to_csv, to_latex, to_markdown
from pocketune.errors import PocketuneError
from pocketune.files import reading, regular, replacing
from pocketune.notebook import Readable
from pocketune.resumable import COMPARISON
from pocketune.schema import parse_object, read_versioned

if TYPE_CHECKING:
    from pocketune.arrays import StrPath

SCHEMA = 1


@dataclass(frozen=True)
class Comparison(Readable):
    """All runs of a comparison, in the order of the grid.

    Example:
        >>> Comparison.read("compare/").rows[0].mean  # doctest: +SKIP
        0.912

    Attributes:
        cells: The runs, finished or failed.
        schema: Version of these fields.
    """

    cells: tuple[Cell, ...]
    schema: int = SCHEMA

    @property
    def rows(self) -> tuple[Row, ...]:
        """A row for each set, model and method."""
        groups: dict[tuple[str, str, str], list[Cell]] = {}
        for cell in self.cells:
            groups.setdefault((cell.photos, cell.model, cell.method), []).append(cell)
        return tuple(Row.of(cells) for cells in groups.values())

    @property
    def failed(self) -> tuple[Cell, ...]:
        """The runs that failed."""
        return tuple(cell for cell in self.cells if cell.error)

    def __str__(self) -> str:
        return to_markdown(self.rows)

    def _repr_markdown_(self) -> str:
        """What notebooks show."""
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {"schema": self.schema, "cells": [cell.to_dict() for cell in self.cells]}

    @classmethod
    def from_dict(cls, data: object, where: str = COMPARISON) -> Comparison:
        """A comparison from the object of `to_dict`; `where` is its place, for messages.

        Raises:
            FieldError: A field is missing, unknown or of the wrong type, or of another version.
        """
        return read_versioned(cls, data, where, SCHEMA)

    def write(self, folder: Path) -> None:
        """Write `compare.json` and the tables `compare.md`, `.csv` and `.tex`, atomically.

        Raises:
            PocketuneError: A file cannot be written.
        """
        texts = {
            COMPARISON: json.dumps(self.to_dict(), indent=1) + "\n",
            "compare.md": to_markdown(self.rows),
            "compare.csv": to_csv(self.rows),
            "compare.tex": to_latex(self.rows),
        }
        for name, text in texts.items():
            with replacing(folder / name) as file:
                file.write_bytes(text.encode("utf-8", "replace"))

    @classmethod
    def read(cls, path: StrPath) -> Comparison:
        """A comparison from its folder or its `compare.json`.

        Raises:
            PocketuneError: It is missing, damaged or of another version.
        """
        path = Path(path)
        with reading(path):
            file = path / COMPARISON if path.is_dir() else path
            if not file.exists():
                raise PocketuneError(f"{path} holds no comparison: it has no {COMPARISON}")
        with reading(file):
            text = regular(file).read_bytes()
        return cls.from_dict(parse_object(text, str(file)), str(file))
