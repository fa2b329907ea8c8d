"""The overlap of each class, in the colors of the masks."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from pocketune.device.use.pictures import palette
from pocketune.files import shown
from pocketune.reporting.charts.style import INK, MUTED, Chart, drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROWS = 40
_LETTERS = 22


def overlap_chart(names: Sequence[str], overlaps: Sequence[float]) -> Chart:
    """The IoU of each class, in the class's color: the legend of the masks.

    Args:
        names: The classes.
        overlaps: The IoU of each; nan for one that does not occur.
    """
    rows = range(min(len(names), _ROWS))
    colors = [
        f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in palette(len(rows)).tolist()
    ]
    known = [0.0 if isnan(overlaps[row]) else overlaps[row] for row in rows]
    with drawing(height=0.75 + 0.24 * len(rows)) as made:
        axes = made.axes
        # A bar of nothing has a color too: a square in front of each.
        axes.barh(rows, -0.03, 0.68, left=-0.015, color=colors, edgecolor=MUTED, linewidth=0.5)
        axes.barh(rows, known, 0.68, color=colors, edgecolor=MUTED, linewidth=0.5)
        for row in rows:
            said = "does not occur" if isnan(overlaps[row]) else f"{overlaps[row]:.1%}"
            axes.text(known[row] + 0.015, row, said, va="center", fontsize=8, color=INK)
        axes.set_yticks(rows, [shown(names[row], _LETTERS) for row in rows])
        axes.tick_params(axis="y", colors=INK)
        axes.set_xlim(-0.05, 1.1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("intersection over union")
    return Chart("Overlap of each class", _told(names, overlaps, len(rows)), made.svg)


def _told(names: Sequence[str], overlaps: Sequence[float], drawn: int) -> str:
    occurring = [(value, name) for value, name in zip(overlaps, names, strict=True) if value >= 0]
    text = "The colors are those of the masks."
    if occurring:
        (least, worst), (most, best) = min(occurring), max(occurring)
        text = (
            f"{shown(best, 40)} overlaps best with what is predicted, {most:.1%}, and "
            f"{shown(worst, 40)} least, {least:.1%}. {text}"
        )
    return text if drawn == len(names) else f"{text} The first {drawn} classes are drawn."
