"""How many photos there are of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.files import shown
from pocketune.reporting.charts.style import FIRST, FOURTH, INK, Chart, drawing
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_ROWS = 16
_SINGLE = {"classes": "class", "attributes": "attribute"}
_LETTERS = 22


def balance_chart(
    names: Sequence[str], training: NDArray[np.int64], validation: NDArray[np.int64], noun: str
) -> Chart:
    """Photos of each class, most first; of many classes, the largest and the smallest."""
    from matplotlib.ticker import MaxNLocator

    single = _SINGLE.get(noun, noun)
    order = np.argsort(-(training + validation), kind="stable")
    rows = [int(i) for i in order]
    if len(rows) > _ROWS:
        rows = rows[: _ROWS // 2] + rows[-_ROWS // 2 :]
    with drawing(height=0.95 + 0.24 * len(rows)) as made:
        axes, places = made.axes, np.arange(len(rows))
        axes.barh(places, training[rows], 0.68, color=FIRST, label="training")
        axes.barh(
            places, validation[rows], 0.68, left=training[rows], color=FOURTH, label="validation"
        )
        axes.set_yticks(places, [shown(names[i], _LETTERS) for i in rows])
        axes.tick_params(axis="y", colors=INK)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        if len(rows) < len(order):
            axes.axhline(_ROWS / 2 - 0.5, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("photos")
        axes.figure.legend(loc="outside upper left", ncols=2, handlelength=0.9, borderaxespad=0.2)
    table = Table(
        (single, "training photos", "validation photos"),
        tuple((names[i], f"{training[i]:,}", f"{validation[i]:,}") for i in order.tolist()),
    )
    return Chart(f"Photos by {single}", _balance(names, training, noun, len(rows)), made.svg, table)


def _balance(names: Sequence[str], training: NDArray[np.int64], noun: str, shown_rows: int) -> str:
    most, least = int(training.argmax()), int(training.argmin())
    if training[most] <= 1.5 * training[least]:
        fewest = "" if training[least] == training[most] else f"{training[least]:,} to "
        text = f"The {noun} are balanced: {fewest}{training[most]:,} training photos each."
    else:
        times = training[most] / max(1, training[least])
        text = (
            f"{shown(names[most], 40)} has {times:,.1f} times as many training photos as "
            f"{shown(names[least], 40)}: {training[most]:,} and {training[least]:,}."
        )
    if shown_rows < len(names):
        text += f" The {shown_rows // 2} largest and {shown_rows // 2} smallest are drawn."
    return text
