"""Every registered table can be computed, and stays as close to its paper as we say."""

from __future__ import annotations

from functools import cache

import pytest

from pocketune.errors import PocketuneError
from pocketune.papers.tables import Cell, list_tables, published_table

NAMES = [about.name for about in list_tables()]

EXACT = {"parameters", "trained parameters"}

SLIPS = {  # of the paper
    "PSPNet, last 10, filtered": 0.32,
    "PSPNet-M, last 5, filtered": 0.04,  # printed with two digits
    "FCN, last 10": 0.34,
    "FCN, last 10, filtered": 0.28,
    "DeepLabV3, all": 0.24,
    "DeepLabV3, last 10": 0.27,
    "DeepLabV3, last 10, filtered": 0.35,
    "UPerNet, all": 0.27,
    "UPerNet, last 5": 0.28,
    "UPerNet, last 10": 0.29,
    "UPerNet, last 5, filtered": 0.055,
    "UPerNet, last 10, filtered": 0.075,
}

FAR = {  # what is known to differ by more than two per cent, with its reason in the table's notes
    ("tinytl-2", "TinyTL-L+B, batch 1 (figure 5)", "memory (MB)"): 0.13,
    ("mobiletl-3", "TinyTL-L", "memory (MB)"): 0.21,
    ("mobiletl-3", "TinyTL-L-B", "memory (MB)"): 0.13,
    ("repnet", "kept in the end", "memory (MB)"): 0.20,
    ("repnet", "pruned, peak", "memory (MB)"): 0.023,
    ("tinytl-search", "predictor, activations (KB)", "figure"): 0.063,  # printed with one digit
    ("gradfilter-2", "mobilenet_v2, all", "memory (KB)"): 0.062,
    ("gradfilter-2", "mcunet_5fps, all", "memory (KB)"): 0.08,
    ("gradfilter-2", "mcunet_5fps, all", "FLOPs (millions)"): 0.075,
    ("gradfilter-2", "resnet34, last 4, filtered", "FLOPs (millions)"): 0.024,
    **{("gradfilter-3", label, "FLOPs (billions)"): known for label, known in SLIPS.items()},
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


SEGMENTATION = {  # all, 5, 10, 5 filtered, 10 filtered, counted right
    "PSPNet": (169.189, 15.0385, 110.607, 0.1419, 1.0341),
    "PSPNet-M": (42.465, 12.2176, 22.437, 0.1142, 0.7612),
    "FCN": (172.934, 59.592, 134.217, 0.5786, 1.2272),
    "DeepLabV3": (187.161, 17.985, 128.579, 0.3127, 3.967),
    "DeepLabV3-M": (54.402, 14.764, 33.077, 0.2561, 1.4030),
    "UPerNet": (685.425, 642.229, 650.149, 2.0773, 2.3855),
}


def test_segmentation_is_counted_right():
    """The thirty figures of Gradient Filtering's table 3, which has slips in a dozen of them."""
    found = {}
    for row in computed("gradfilter-3").rows:
        found.setdefault(row.label.split(",")[0], []).append(row.cells["FLOPs (billions)"].ours)
    assert found.keys() == SEGMENTATION.keys()
    for name, figures in SEGMENTATION.items():
        digits = [len(str(figure).partition(".")[2]) for figure in figures]
        assert tuple(map(round, found[name], digits)) == figures, name
    assert round(found["UPerNet"][2] / found["UPerNet"][4]) == 273
    assert round(found["PSPNet"][2] / found["PSPNet"][4]) == 107


def test_the_phases_of_tinytls_search_take_what_is_printed():
    cells = {row.label: row.cells["figure"] for row in computed("tinytl-search").rows}
    phases = {
        "MACs (T) of training the supernet": 134.07,
        "MACs (T) of measuring pairs": 156.76,
        "MACs (T) of training the result": 223.38,
    }
    assert {label: round(cells[label].ours, 2) for label in phases} == phases
    assert all(round(cells[label].ours) == cells[label].paper for label in phases)


def test_a_difference_is_relative_to_the_paper():
    assert Cell(paper=50, ours=51).difference == pytest.approx(0.02)


def test_an_unknown_table():
    with pytest.raises(PocketuneError, match="no table 'table-9'; choose from tinytl-2, tinytl-3"):
        published_table("table-9")
