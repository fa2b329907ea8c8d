"""The memory that a paper counts, as a table for a terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pocketune.accounting.costs import LayerCost, combine
from pocketune.accounting.render import SHORT, draw_bar, in_megabytes, megabytes, path_or_network
from pocketune.papers.counts import PublishedMemory


def to_dict(memory: PublishedMemory) -> dict[str, Any]:
    """Plain values for JSON."""
    names = (
        "name", "kind", "block", "kept_bytes", "cumulative_kept_bytes", "temporary_bytes",
        "peak_bytes",
    )  # fmt: skip
    layers = [{name: getattr(layer, name) for name in names} for layer in memory.layers]
    return {**asdict(memory), "layers": layers}


def draw_published(memory: PublishedMemory, *, by: str = "block") -> RenderableType:
    """The memory of one sample by `block` or `layer`, and the total."""
    table = Table(title=f"As {memory.convention} counts, in MB: a step of {memory.batch}")
    table.add_column(by, overflow="fold")
    for header in ("kept, a sample", "so far", "temporary", "peak"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("", width=SHORT)
    highest = max(layer.peak_bytes for layer in memory.layers)
    for row in _rows(memory, by):
        table.add_row(
            path_or_network(row.name),
            in_megabytes(row.kept_bytes),
            in_megabytes(row.cumulative_kept_bytes),
            in_megabytes(row.temporary_bytes),
            in_megabytes(row.peak_bytes),
            draw_bar(row.peak_bytes, highest, SHORT),
            style="bold" if row.peak_bytes == highest else None,
        )
    total = Text.assemble(
        f"parameters {megabytes(memory.parameter_bytes)}, "
        f"activations {megabytes(memory.activation_bytes)}, total ",
        (megabytes(memory.total_bytes), "bold"),
    )
    return Group(table, total)


def _rows(memory: PublishedMemory, by: str) -> list[LayerCost]:
    """Layers together that have the same block, or the same path."""
    groups: dict[str, list[LayerCost]] = {}
    for layer in memory.layers:
        groups.setdefault((layer.block if by == "block" else None) or layer.name, []).append(layer)
    return [
        combine(
            layers,
            name=name,
            kind=layers[0].kind,
            cumulative_kept_bytes=layers[-1].cumulative_kept_bytes,
        )
        for name, layers in groups.items()
    ]
