"""What a paper counts, as a table and as JSON."""

from __future__ import annotations

import json

import pytest
from torch import nn

from pocketune.accounting.render import as_text, megabytes
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
