"""The front of predicted accuracy over memory as a picture."""

from __future__ import annotations

from pathlib import Path

from pocketune.extractor.predictor import Values
from pocketune.extractor.record import Record
from pocketune.files import writing

_INK, _GRID = "#2f3640", "#e6e8ec"
_PAIRS, _FRONT, _CHOSEN = "#a3acba", "#2a9d8f", "#e76f51"


def draw_front(record: Record, memory: Values, metric: str, path: Path) -> None:
    """Draw measured sub-networks, the front and the chosen one; nothing without matplotlib.

    Args:
        record: A finished search.
        memory: Estimated peak bytes (N,) of the measured sub-networks.
        metric: What is measured, for the axis.
        path: The picture to write, an `.svg`.

    Raises:
        PocketuneError: The file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(
        memory / 1e6,
        [pair.accuracy for pair in record.pairs],
        s=14, color=_PAIRS, label="measured, at random",
    )  # fmt: skip
    axes.step(
        [each.forecast.memory / 1e6 for each in record.front],
        [each.predicted for each in record.front],
        where="post", marker="o", markersize=4, color=_FRONT, label="front, predicted",
    )  # fmt: skip
    chosen = record.chosen
    axes.plot(
        [chosen.forecast.memory / 1e6],
        [chosen.accuracy or 0.0],
        "*", markersize=13, color=_CHOSEN, label="chosen, measured",
    )  # fmt: skip
    if (budget := record.limits.get("budget")) is not None:
        axes.axvline(budget / 1e6, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set_xlabel("peak memory of the whole training process (MB)", color=_INK)
    axes.set_ylabel(f"{metric} on the held-out photos", color=_INK)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    with writing(path):
        figure.savefig(path)
