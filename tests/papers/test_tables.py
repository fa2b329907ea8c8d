"""Every registered table can be computed, and stays as close to its paper as we say."""

from __future__ import annotations

from functools import cache

import pytest

from pocketune.errors import PocketuneError
from pocketune.papers.tables import Cell, list_tables, published_table

NAMES = [about.name for about in list_tables()]

EXACT = {"parameters", "trained parameters"}

FAR = {  # what is known to differ by more than two per cent, with its reason in the table's notes
    ("tinytl-2", "TinyTL-L+B, batch 1 (figure 5)", "memory (MB)"): 0.13,
    ("mobiletl-3", "TinyTL-L", "memory (MB)"): 0.21,
    ("mobiletl-3", "TinyTL-L-B", "memory (MB)"): 0.13,
    ("repnet", "kept in the end", "memory (MB)"): 0.20,
    ("repnet", "pruned, peak", "memory (MB)"): 0.023,
    ("gradfilter-2", "mobilenet_v2, all", "memory (KB)"): 0.062,
    ("gradfilter-2", "mcunet_5fps, all", "memory (KB)"): 0.08,
    ("gradfilter-2", "mcunet_5fps, all", "FLOPs (millions)"): 0.075,
    ("gradfilter-2", "resnet34, last 4, filtered", "FLOPs (millions)"): 0.023,
}


computed = cache(published_table)
"""Each table once."""


@pytest.mark.parametrize("name", NAMES)
def test_every_table(name):
    table = computed(name)
    assert table.about.name == name and table.about.notes
    assert table.rows
    for row in table.rows:
        assert tuple(row.cells) == table.about.columns
        for column, cell in row.cells.items():
            known = FAR.get((name, row.label, column), 0.02)
            assert abs(cell.difference) <= (0 if column in EXACT else known), row.label


def test_every_known_difference_is_one():
    """A figure that has come closer is no longer listed as far."""
    for (name, label, column), known in FAR.items():
        (row,) = (row for row in computed(name).rows if row.label == label)
        assert known * 0.9 < abs(row.cells[column].difference) <= known


def test_a_difference_is_relative_to_the_paper():
    assert Cell(paper=50, ours=51).difference == pytest.approx(0.02)


def test_an_unknown_table():
    with pytest.raises(PocketuneError, match="no table 'table-9'; choose from tinytl-2, tinytl-3"):
        published_table("table-9")
