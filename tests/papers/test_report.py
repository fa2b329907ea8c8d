"""What a paper counts, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console
from torch import nn

from pocketune.accounting.render import as_text, in_megabytes, megabytes
from pocketune.papers import published_memory
from pocketune.papers.counts import PublishedMemory
from pocketune.papers.report import draw_published, to_dict


@pytest.fixture(scope="module")
def memory() -> PublishedMemory:
    relu = nn.ReLU()
    layers = [nn.Conv2d(3, 4, 3), relu, nn.Conv2d(4, 4, 3), relu, nn.Flatten(), nn.Linear(64, 2)]
    return published_memory(nn.Sequential(*layers), "tinytl", batch=2, size=8)


def test_the_json_has_what_the_convention_counts(memory):
    values = json.loads(json.dumps(to_dict(memory)))
    assert values["total_bytes"] == values["parameter_bytes"] + values["activation_bytes"]
    assert sum(layer["kept_bytes"] for layer in values["layers"]) == memory.kept_bytes
    assert [layer["kind"] for layer in values["layers"]].count("ReLU") == 2
    assert "flops" not in values["layers"][0]  # these are of another convention


def test_calls_of_one_module_are_one_row(memory):
    text = as_text(draw_published(memory, by="layer"))
    rows = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
    assert rows == ["0", "1", "2", "4", "5"]
    assert f"total {megabytes(memory.total_bytes)}" in text


def test_on_80_columns_no_name_is_cut(memory):
    console, name = Console(width=80), "features.18.conv.0.0"
    long = replace(memory, layers=tuple(replace(each, name=name) for each in memory.layers))
    with console.capture() as captured:
        console.print(draw_published(long, by="layer"))
    rows = [line.split("│")[1:] for line in captured.get().splitlines() if line.startswith("│")]
    assert "".join(row[0].strip() for row in rows) == name
    assert in_megabytes(memory.layers[-1].cumulative_kept_bytes) in rows[0][2]
