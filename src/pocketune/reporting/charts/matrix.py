"""The confusion matrix as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.errors import counted
from pocketune.files import shown
from pocketune.reporting.charts.style import FIRST, GRID, INK, LIMIT, PAPER, Chart, drawing
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pocketune.reporting.confusion import Matrix, Pair

_LETTERS = 18


def confusion_chart(
    matrix: Matrix, pairs: Sequence[Pair], classes: int, unit: str = "photo"
) -> Chart:
    """The matrix with a cell for each pair of classes, darker where more of a class's photos are.

    Right predictions, on the diagonal, have another color than mistakes. Pixels, of which there are
    many, are shown as a share of their class.
    """
    names = [shown(name, _LETTERS) for name in matrix.names]
    size = len(names)
    side = min(5.4, 2.4 + 0.26 * size)
    with drawing(height=side) as made:
        axes = made.axes
        _draw_cells(axes, matrix.counts, unit)
        axes.set_xlim(-0.5, size - 0.5)
        axes.set_ylim(size - 0.5, -0.5)
        axes.grid(visible=False)
        for edge in range(size + 1):
            axes.axhline(edge - 0.5, color=GRID, linewidth=0.6)
            axes.axvline(edge - 0.5, color=GRID, linewidth=0.6)
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if size > 4 else {}
        axes.set_xticks(range(size), names, fontsize=9 if size <= 10 else 8, **turned)
        axes.set_yticks(range(size), names, fontsize=9 if size <= 10 else 8)
        axes.set_xlabel("predicted")
        axes.set_ylabel("labeled")
    text = f"No {unit} is taken for another class."
    if pairs:
        text = _most_frequent(pairs, unit)
    if classes > len(names):
        text += f" The {len(names) - 1} most confused of {classes} classes are shown."
    rows = tuple((p.truth, p.guess, f"{p.photos:,}") for p in pairs)
    return Chart(
        "Confusion matrix", text, made.svg, Table(("labeled", "predicted", f"{unit}s"), rows)
    )


def _draw_cells(axes: Any, counts: NDArray[np.int64], unit: str) -> None:
    """A square with a number for each pair of classes that occurs."""
    from matplotlib.patches import Rectangle

    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for row, column in np.argwhere(counts > 0).tolist():
        share, right = float(shares[row, column]), row == column
        color = FIRST if right else LIMIT
        strength = 0.08 + 0.92 * share if right else 0.12 + 0.88 * min(1.0, 2 * share)
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, alpha=strength))
        cell = _short(int(counts[row, column])) if unit == "photo" else f"{share:.0%}"
        axes.text(
            column, row, cell, ha="center", va="center",
            color=PAPER if strength > 0.6 else INK, fontsize=9 if len(counts) <= 10 else 7,
        )  # fmt: skip


def _most_frequent(pairs: Sequence[Pair], unit: str) -> str:
    """The most frequent mistake, if one occurs more than once; `pairs` are sorted."""
    first = pairs[0]
    if first.photos == 1 and len(pairs) > 1:
        return "No mistake occurs twice."
    what = "The only mistake" if len(pairs) == 1 else "The most frequent mistake"
    return (
        f"{what}: {counted(first.photos, unit)} labeled {shown(first.truth)} "
        f"{'is' if first.photos == 1 else 'are'} taken for {shown(first.guess)}."
    )


def _short(count: int) -> str:
    """A number that fits into a cell."""
    return str(count) if count < 1000 else f"{count / 1000:.2g}k" if count < 1e4 else "10k+"
