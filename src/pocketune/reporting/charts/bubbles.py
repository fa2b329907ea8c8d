"""What a megabyte buys: accuracy over peak memory, with FLOPs as area."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pocketune.device.memory.sizes import format_size
from pocketune.files import shown
from pocketune.pareto import pareto_front
from pocketune.reporting.charts.style import (
    FIRST,
    INK,
    LIMIT,
    MUTED,
    SERIES,
    WIDE,
    Chart,
    drawing,
    tick,
)
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 900.0
"""Square points of the largest bubble."""
_NAMED = 6
"""Of so many bubbles, each has its name; of more, those on the front."""
_PLACES = (-9, 9), (9, -9), (9, 9), (-9, -9), (0, 16), (0, -16), (-9, 26), (9, -26), (9, 26)
"""Where a name may stand beside its bubble, in points; a front that rises leaves the first free."""


@dataclass(frozen=True)
class Bubble:
    """A candidate.

    Attributes:
        name: What it is, in a few words.
        peak: Peak bytes of the process.
        value: Its metric.
        flops: FLOPs of a training step.
        group: Bubbles of a group share a color.
        chosen: Whether it is the answer.
        spread: Standard deviation of the value; 0 if it is not known.
    """

    name: str
    peak: float
    value: float
    flops: float
    group: str = ""
    chosen: bool = False
    spread: float = 0.0


def bubble_chart(
    bubbles: Sequence[Bubble],
    *,
    metric: str,
    style: str = ".1%",
    budget: int | None = None,
    larger_is_better: bool = True,
) -> Chart:
    """Each candidate as a bubble; those on the Pareto front are connected."""
    sign = 1 if larger_is_better else -1
    front = pareto_front(bubbles, lambda b: b.peak, lambda b: sign * b.value)
    largest = max((bubble.flops for bubble in bubbles), default=0) or 1
    with drawing(width=WIDE, height=4.4) as made:
        axes = made.axes
        peaks, values = [b.peak / 1e6 for b in front], [b.value for b in front]
        axes.plot(peaks, values, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        sizes = [max(24.0, _LARGEST * bubble.flops / largest) for bubble in bubbles]
        _draw_bubbles(axes, bubbles, sizes)
        axes.margins(0.2, 0.18)
        if budget is not None:
            _draw_budget(axes, budget)
        axes.yaxis.set_major_formatter(lambda value, _: tick(value, style))
        axes.set_xlabel("peak memory of the process, MB")
        axes.set_ylabel(metric)
        if any(bubble.group for bubble in bubbles):
            axes.figure.legend(loc="outside upper left", ncols=6, borderaxespad=0.2)
        _draw_names(axes, bubbles, front, sizes)
    table = Table(
        ("candidate", metric, "peak", "GFLOPs a step"),
        tuple(
            (b.name, f"{b.value:{style}}", format_size(round(b.peak)), f"{b.flops / 1e9:,.2f}")
            for b in sorted(bubbles, key=lambda b: b.peak)
        ),
    )
    text = (
        f"Each bubble is a candidate; its area is the arithmetic of a training step, up to "
        f"{largest / 1e9:,.2f} GFLOPs. The dashed line connects those that no other beats at the "
        "same memory."
    )
    return Chart(f"What memory buys: {metric} over peak memory", text, made.svg, table, wide=True)


def _draw_bubbles(axes: Any, bubbles: Sequence[Bubble], sizes: Sequence[float]) -> None:
    """Each group in a color of its own; the chosen bubble has a ring."""
    groups = list(dict.fromkeys(bubble.group for bubble in bubbles))
    for number, group in enumerate(groups):
        own = [bubble for bubble in bubbles if bubble.group == group]
        of_own = [size for b, size in zip(bubbles, sizes, strict=True) if b.group == group]
        color = SERIES[number % len(SERIES)] if group else FIRST
        axes.scatter(
            [b.peak / 1e6 for b in own],
            [b.value for b in own],
            s=of_own,
            color=color, alpha=0.55, edgecolors=color, linewidths=1.2, zorder=2,
        )  # fmt: skip
        if group:
            axes.plot([], [], "o", color=color, label=shown(group, 30))
    for b in bubbles:
        if b.spread:
            axes.errorbar(b.peak / 1e6, b.value, b.spread, color=INK, linewidth=1, zorder=3)
        if b.chosen:
            axes.plot(
                b.peak / 1e6, b.value, "o", markersize=9, mfc="none", mec=INK, mew=1.8, zorder=5,
            )  # fmt: skip


def _draw_names(
    axes: Any, bubbles: Sequence[Bubble], front: Sequence[Bubble], sizes: Sequence[float]
) -> None:
    """Names where they cover neither a bubble nor another name; one without a place is left out."""
    behind = [bubble for bubble in bubbles if bubble not in front]
    named = [*front, *behind] if len(bubbles) <= _NAMED else [*front]
    named.sort(key=lambda bubble: not bubble.chosen)
    figure = axes.figure
    figure.draw_without_rendering()  # from here on, sizes are those of the picture
    taken = [
        (bubble, _circle(axes, bubble, size)) for bubble, size in zip(bubbles, sizes, strict=True)
    ]
    for bubble in named:
        for aside, above in _PLACES:
            text = axes.annotate(
                shown(bubble.name, 34), (bubble.peak / 1e6, bubble.value),
                (aside, above), textcoords="offset points",
                ha="left" if aside > 0 else "right" if aside < 0 else "center",
                va="bottom" if above > 0 else "top",
                color=INK, fontweight="bold" if bubble.chosen else "normal", zorder=4,
            )  # fmt: skip
            box = text.get_window_extent()
            others = (each for owner, each in taken if owner is not bubble)
            if (
                axes.bbox.containsx(box.x0)
                and axes.bbox.containsx(box.x1)
                and not any(box.overlaps(other) for other in others)
            ):
                taken.append((bubble, box))
                break
            text.remove()


def _circle(axes: Any, bubble: Bubble, size: float) -> Any:
    """The square around a bubble, in pixels."""
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform((bubble.peak / 1e6, bubble.value))
    radius = size**0.5 / 2 * axes.figure.dpi / 72
    return Bbox.from_extents(x - radius, y - radius, x + radius, y + radius)


def _draw_budget(axes: Any, budget: int) -> None:
    axes.axvline(budget / 1e6, color=LIMIT, linewidth=1.6)
    axes.annotate(
        f"budget {format_size(budget)}", (budget / 1e6, 0), (-5, 6),
        xycoords=("data", "axes fraction"), textcoords="offset points", ha="right",
        color=LIMIT, fontweight="bold",
    )  # fmt: skip
