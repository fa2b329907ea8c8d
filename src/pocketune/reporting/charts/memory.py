"""Where the memory of a run goes: by purpose, and over a training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import format_size
from pocketune.reporting.charts.style import (
    FIRST,
    INK,
    LIMIT,
    MUTED,
    SERIES,
    WIDE,
    Chart,
    drawing,
)
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.reporting.memory import Part, StepMemory


def parts_chart(parts: Sequence[Part], measured: int, budget: int | None) -> Chart:
    """The parts of the predicted peak as one bar, above the measured peak and the budget."""
    predicted = sum(part.bytes for part in parts)
    with drawing(width=WIDE, height=2.4) as made:
        axes = made.axes
        _draw_bars(axes, parts, measured, budget)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("MB")
        axes.tick_params(axis="y", colors=INK)
        if budget is not None:
            _draw_vertical_budget(axes, budget)
        axes.figure.legend(
            loc="outside upper left", ncols=4, handlelength=0.9, handleheight=0.9,
            columnspacing=1.3, borderaxespad=0.2,
        )  # fmt: skip
    off = (predicted - measured) / measured
    largest = max(parts, key=lambda part: part.bytes)
    text = (
        f"The prediction before the run, {format_size(predicted)}, is {abs(off):.0%} "
        f"{'above' if off >= 0 else 'below'} the measured peak, {format_size(measured)}. The "
        f"largest part is {largest.name}, {format_size(largest.bytes)}."
    )
    rows = [(part.name, f"{part.bytes / 1e6:,.1f}") for part in parts]
    rows += [("predicted peak", f"{predicted / 1e6:,.1f}")]
    rows += [("measured peak", f"{measured / 1e6:,.1f}")]
    if budget is not None:
        rows += [("budget", f"{budget / 1e6:,.1f}")]
    table = Table(("part", "MB"), tuple(rows))
    return Chart("Memory by purpose", text, made.svg, table, wide=True)


def _draw_bars(axes: Any, parts: Sequence[Part], measured: int, budget: int | None) -> None:
    """The bars of the prediction and of the measured peak, each with its size behind it."""
    predicted = 0
    for part, color in zip(parts, SERIES, strict=True):
        size, left = part.bytes / 1e6, predicted / 1e6
        axes.barh("predicted", size, left=left, color=color, label=part.name, height=0.62)
        predicted += part.bytes
    axes.barh("measured", measured / 1e6, color=MUTED, height=0.62)
    longest = max(predicted, measured, budget or 0)
    axes.set_xlim(0, longest / 1e6 * 1.1)
    for row, end in (("predicted", predicted), ("measured", measured)):
        text = format_size(end)
        if budget is not None and end <= budget < end + 0.1 * longest:
            end = budget  # whose line would go through the words
        axes.annotate(
            text, (end / 1e6, row), (5, 0), textcoords="offset points",
            va="center", color=INK, fontweight="bold",
        )  # fmt: skip


def step_chart(memory: StepMemory, measured: int, budget: int | None) -> Chart:
    """The memory of the process at each operator of a step, with the budget's line."""
    totals = [total / 1e6 for total in memory.totals]
    edges = range(len(totals) + 1)
    values = [*totals, totals[-1]]
    with drawing(width=WIDE, height=3.1) as made:
        axes, base = made.axes, memory.base / 1e6
        axes.fill_between(edges, base, color=MUTED, alpha=0.25, linewidth=0, step="post")
        axes.fill_between(edges, base, values, color=FIRST, alpha=0.35, linewidth=0, step="post")
        axes.step(edges, values, where="post", color=FIRST, linewidth=1.2)
        axes.axhline(measured / 1e6, color=INK, linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            f"measured peak {format_size(measured)}", (0, measured / 1e6), (4, 4),
            textcoords="offset points", color=INK,
        )  # fmt: skip
        top = max(*totals, measured / 1e6, (budget or 0) / 1e6)
        axes.set_xlim(0, len(totals))
        axes.set_ylim(0, top * 1.13)
        if budget is not None:
            _draw_horizontal_budget(axes, budget)
        if 0 < memory.frozen < len(totals):
            axes.axvline(memory.frozen, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
            _phase(axes, memory.frozen / 2, "frozen part")
            _phase(axes, (memory.frozen + len(totals)) / 2, "forward and backward pass")
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("operators, in the order in which they run")
        axes.set_ylabel("MB")
    peak = memory.peak
    text = (
        f"{format_size(memory.base)} are held all the time (gray). The tensors of the step add up "
        f"to {format_size(peak.bytes)} more, at {peak.block}."
    )
    rows = tuple((part.name, f"{part.bytes / 1e6:,.2f}") for part in memory.blocks)
    table = Table(("block", "most MB of tensors while it runs"), rows)
    return Chart("Memory over a training step", text, made.svg, table, wide=True)


def _draw_vertical_budget(axes: Any, budget: int) -> None:
    axes.axvline(budget / 1e6, color=LIMIT, linewidth=1.6)
    axes.annotate(
        f"budget {format_size(budget)}", (budget / 1e6, 0.5), (-5, 0),
        xycoords=("data", "axes fraction"), textcoords="offset points", ha="right", va="center",
        color=LIMIT, fontweight="bold",
    )  # fmt: skip


def _draw_horizontal_budget(axes: Any, budget: int) -> None:
    axes.axhline(budget / 1e6, color=LIMIT, linewidth=1.6)
    axes.annotate(
        f"budget {format_size(budget)}", (1, budget / 1e6), (-3, 4),
        xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
        color=LIMIT, fontweight="bold",
    )  # fmt: skip


def _phase(axes: Any, place: float, text: str) -> None:
    axes.annotate(
        text, (place, 0), (0, 5), xycoords=("data", "axes fraction"),
        textcoords="offset points", ha="center", color=MUTED,
    )  # fmt: skip
