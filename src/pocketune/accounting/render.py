"""The costs of a step as tables and bars for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from pocketune.accounting.costs import Flops, LayerCost
from pocketune.accounting.timeline import Snapshot, largest_bytes, peak

LABELS = {
    "trained_parameters": "parameters, trained",
    "frozen_parameters": "parameters, frozen",
    "statistics": "running statistics",
    "optimizer": "optimizer state",
    "images": "images",
    "kept": "kept for the backward pass",
    "residual": "waiting (residuals, callers)",
    "temporaries": "temporaries",
    "workspace": "workspace of kernels",
    "gradients": "gradients",
}
"""The categories of `Memory` in words."""

BAR, SHORT = 20, 8
_SPARKS = "▁▂▃▄▅▆▇█"
_LINE = 72


def as_text(drawn: RenderableType) -> str:
    """Tables as text, without colors."""
    console = Console(width=100)
    with console.capture() as captured:
        console.print(drawn)
    return captured.get().rstrip()


def draw_step(
    title: str,
    timeline: Sequence[Snapshot],
    costs: Sequence[LayerCost],
    *,
    by: str,
    worst_block: str,
) -> RenderableType:
    """Categories and total, the course of the step, and its costs.

    Args:
        title: Of the first table.
        timeline: The memory at each operator.
        costs: The rows of the second table.
        by: What a row is, `block` or `layer`.
        worst_block: Path of the block that holds the peak.
    """
    return Group(
        _categories(title, timeline),
        Text(),
        *_course(timeline, worst_block),
        Text(),
        _costs(costs, by),
        _flops(costs),
    )


def _categories(title: str, timeline: Sequence[Snapshot]) -> Table:
    memory = peak(timeline).memory
    table = Table(title=title)
    table.add_column("memory")
    table.add_column("at the peak", justify="right")
    table.add_column("", width=BAR)
    table.add_column("at most", justify="right", style="dim")
    largest = largest_bytes(timeline)
    for name, size in memory.by_category().items():
        if largest[name]:
            bar = draw_bar(size, memory.total)
            table.add_row(LABELS[name], megabytes(size), bar, megabytes(largest[name]))
    table.add_section()
    table.add_row("total", megabytes(memory.total), "", "", style="bold")
    return table


def _course(timeline: Sequence[Snapshot], worst_block: str) -> list[Text]:
    """Where the peak is, and a sparkline of the whole step."""
    highest = peak(timeline)
    place = path_or_network(highest.layer)
    totals = [snapshot.memory.total for snapshot in timeline]
    backward = next(i for i, s in enumerate(timeline) if s.phase == "backward")
    turn = round(backward / len(totals) * _LINE)
    return [
        Text(f"The peak is in the {highest.phase} pass at {place},"),
        Text.assemble(
            f"in {highest.operator}; the worst block is ",
            (path_or_network(worst_block), "bold"),
            ".",
        ),
        Text(sparkline(totals, _LINE), style="cyan"),
        Text("forward".ljust(turn) + "backward", style="dim"),
    ]


def _costs(costs: Sequence[LayerCost], by: str) -> Table:
    table = Table(title=f"MB and MFLOP by {by}")
    table.add_column(by, overflow="fold")
    for header in ("params", "kept", "so far", "temp.", "peak", "MFLOP"):
        table.add_column(header, justify="right", no_wrap=True)
    if by == "block":  # the names of layers are too long for one on 80 columns
        table.add_column("", width=SHORT)
    highest = max(cost.peak_bytes for cost in costs)
    for cost in costs:
        table.add_row(
            path_or_network(cost.name),
            in_megabytes(cost.parameter_bytes),
            in_megabytes(cost.kept_bytes),
            in_megabytes(cost.cumulative_kept_bytes),
            in_megabytes(cost.temporary_bytes),
            in_megabytes(cost.peak_bytes),
            f"{cost.flops.total / 1e6:,.1f}",
            *([draw_bar(cost.peak_bytes, highest, SHORT)] if by == "block" else []),
            style="bold" if cost.peak_bytes == highest else None,
        )
    return table


def _flops(costs: Iterable[LayerCost]) -> Text:
    whole = sum((cost.flops for cost in costs), Flops())
    parts = ((name, getattr(whole, name)) for name in ("forward", "backward", "optimizer"))
    flops = ", ".join(f"{name} {count / 1e6:,.1f}" for name, count in parts)
    macs = f"{whole.forward_macs / 1e6:,.1f} and {whole.backward_macs / 1e6:,.1f}"
    return Text(
        f"MB are 10^6 bytes. MFLOP a step: {flops}; multiply-accumulates forward and "
        f"backward: {macs} million."
    )


def megabytes(size: int) -> str:
    """Megabytes (10^6 bytes) with two decimals."""
    return f"{in_megabytes(size)} MB"


def in_megabytes(size: int) -> str:
    """The same without the unit."""
    return f"{size / 1e6:,.2f}"


def sparkline(values: Sequence[int], width: int) -> str:
    """A line of `width` bars, each the largest of its share of the values.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 4)
    '▂▄▆█'
    """
    highest = max(1, *values)
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    last = len(values) - 1  # there may be fewer values than bars
    parts = [values[min(a, last) : max(a + 1, b)] for a, b in pairwise(edges)]
    return "".join(_SPARKS[round(max(part) / highest * (len(_SPARKS) - 1))] for part in parts)


def draw_bar(size: int, whole: int, width: int = BAR) -> str:
    """A bar of `width` characters at most: `size` of `whole`."""
    return "█" * round(size / max(1, whole) * width)


def path_or_network(path: str) -> str:
    """The path of a layer, or words for the network itself."""
    return path or "(network)"
