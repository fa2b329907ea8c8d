"""`pocketune tables`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pocketune.cli.command import command
from pocketune.cli.options import JsonOption, argument
from pocketune.errors import author_half

if TYPE_CHECKING:
    from pocketune.papers.tables import Cell, Table


@dataclass(frozen=True, kw_only=True)
class TableArgument:
    """The table to compute."""

    name: str | None = argument(
        "Table to compute, such as mobiletl-3.",
        default=None,
        metavar="NAME",
        unset="list all tables",
    )


@command("pocketune tables", "pocketune tables mobiletl-3 --json | jq .rows")
def tables(table: TableArgument, output: JsonOption) -> None:
    """Recompute the papers' tables and compare each figure with the printed one.

    With --json: one object, {"name", "source", "columns", "notes", "rows": [{"label", "cells":
    {column: {"paper", "ours", "difference"}}}, ...]}, or a list of such objects without rows.
    """
    with author_half("computing a table"):
        from pocketune.papers.tables import list_tables, published_table
    from pocketune.reporting.progress import busy

    if table.name is not None:
        with busy("computing the table"):
            computed = published_table(table.name)
        print(json.dumps(_values(computed))) if output.json else _show(computed)
    elif output.json:
        print(json.dumps([asdict(about) for about in list_tables()]))
    else:
        for about in list_tables():
            print(f"{about.name:<13} {about.source}")


def _values(table: Table) -> dict[str, Any]:
    rows = [
        {
            "label": row.label,
            "cells": {
                column: {**asdict(cell), "difference": cell.difference}
                for column, cell in row.cells.items()
            },
        }
        for row in table.rows
    ]
    return {**asdict(table.about), "rows": rows}


def _show(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console(highlight=False)
    console.print(table.about.source, soft_wrap=True)
    for column in table.about.columns:  # stacked, because side by side they would be cut off
        grid = Grid(box=box.SIMPLE_HEAD)
        grid.add_column(column, no_wrap=True)
        for title in ("paper", "ours", "difference"):
            grid.add_column(title, justify="right", no_wrap=True)
        digits = _digits(table, column)
        for row in table.rows:
            grid.add_row(row.label, *_texts(row.cells[column], digits))
        console.print(grid)
    for note in table.about.notes:
        console.print(note, soft_wrap=True)


def _digits(table: Table, column: str) -> tuple[int, int]:
    """Decimals of the paper's and of our values: as printed, and one more; none for counts."""
    cells = [row.cells[column] for row in table.rows]
    if all(isinstance(cell.paper, int) and isinstance(cell.ours, int) for cell in cells):
        return 0, 0
    printed = max(len(f"{cell.paper:.3f}".rstrip("0").partition(".")[2]) for cell in cells)
    return printed, printed + 1


def _texts(cell: Cell, digits: tuple[int, int]) -> tuple[str, str, str]:
    difference = f"{cell.difference:+.2%}".replace("-0.00%", "0.00%").replace("+0.00%", "0.00%")
    return f"{cell.paper:,.{digits[0]}f}", f"{cell.ours:,.{digits[1]}f}", difference
