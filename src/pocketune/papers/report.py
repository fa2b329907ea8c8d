"""A paper's count as people read it."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pocketune.accounting.report import (
    _BAR,
    _bar,
    _number,
    _place,
    megabytes,
)
from pocketune.papers.conventions.memory import LayerMemory, PublishedMemory


def print_published(memory: PublishedMemory, *, by: str, as_json: bool) -> None:
    """Print a paper's count to the terminal, as a table or as one JSON object."""
    if as_json:
        print(json.dumps(asdict(memory)))
    else:
        Console().print(published_report(memory, by=by))


def published_report(memory: PublishedMemory, *, by: str = "block") -> RenderableType:
    """What a paper counts: of a sample by `block` or `layer`, and in total."""
    table = Table(title=f"As {memory.convention} counts, in MB: a step of {memory.batch}")
    table.add_column(by)
    for header in ("kept, a sample", "so far", "temporary", "peak"):
        table.add_column(header, justify="right")
    table.add_column("", width=_BAR)
    groups: dict[str, list[LayerMemory]] = {}
    for layer in memory.layers:
        groups.setdefault((layer.block if by == "block" else None) or layer.path, []).append(layer)
    highest = max(layer.peak_bytes for layer in memory.layers)
    for name, layers in groups.items():
        peak = max(layer.peak_bytes for layer in layers)
        table.add_row(
            _place(name),
            _number(sum(layer.saved_bytes for layer in layers)),
            _number(layers[-1].cumulative_bytes),
            _number(max(layer.temporary_bytes for layer in layers)),
            _number(peak),
            _bar(peak, highest),
            style="bold" if peak == highest else None,
        )
    total = Text.assemble(
        f"parameters {megabytes(memory.parameter_bytes)}, "
        f"activations {megabytes(memory.activation_bytes)}, total ",
        (megabytes(memory.total_bytes), "bold"),
    )
    return Group(table, total)
