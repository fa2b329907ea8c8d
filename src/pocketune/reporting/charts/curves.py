"""Loss, metric and learning rate over the steps of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.reporting.charts.style import (
    FIRST,
    FOURTH,
    INK,
    MUTED,
    SECOND,
    WIDE,
    Chart,
    drawing,
    tick,
)
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pocketune.reporting.metrics import Curve, Metrics
    from pocketune.tasks import Score

POINTS = 80
"""Points of a curve of training batches; each is the mean of its neighbors."""
_ROWS = 60


def metric_chart(
    metrics: Metrics, name: str, style: str, best_step: int | None, start: Score | None
) -> Chart:
    """The task's metric on training batches and on the validation photos."""
    held = metrics.of_epochs(f"validation_{name}")
    with drawing() as made:
        axes = made.axes
        _plot(axes, metrics.of_steps(name), "training batches", FOURTH, faint=True)
        _plot(axes, held, "validation photos", FIRST, marker="o")
        if start is not None:
            label = f"start, {start.value:{style}}"
            axes.axhline(start.value, color=MUTED, lw=1, linestyle=(0, (4, 3)), label=label)
        best = dict(zip(held.steps, held.values, strict=True)).get(
            math.nan if best_step is None else float(best_step)
        )
        if best is not None:
            axes.plot([best_step], [best], "o", markersize=10, mfc="none", mec=INK, mew=1.4)
        _finish(axes, lambda value: tick(value, style))
        if style.endswith("%"):
            axes.set_ylim(top=min(1.03, axes.get_ylim()[1]))
    return Chart(
        f"{name.capitalize() if name.islower() else name} over the steps",
        _told(metrics, name, style),
        made.svg,
        _epochs(metrics, name, style),
    )


def loss_chart(metrics: Metrics) -> Chart:
    """The loss on training batches and on the validation photos."""
    held = metrics.of_epochs("validation_loss")
    with drawing() as made:
        _plot(made.axes, metrics.of_steps("loss"), "training batches", FOURTH, faint=True)
        _plot(made.axes, held, "validation photos", FIRST, marker="o")
        _finish(made.axes, lambda value: f"{value:g}")
        made.axes.set_ylim(bottom=0)
    return Chart(
        "Loss over the steps",
        _told(metrics, "loss", ".3f"),
        made.svg,
        _epochs(metrics, "loss", ".3f"),
    )


def rate_chart(metrics: Metrics) -> Chart | None:
    """The learning rate of each step; None if no step is logged."""
    curve = metrics.of_steps("lr")
    known = [value for value in curve.values if math.isfinite(value)]
    if not known:
        return None
    with drawing(width=WIDE, height=1.7) as made:
        thin = curve.thinned(POINTS)
        made.axes.plot(thin.steps, thin.values, color=SECOND)
        made.axes.fill_between(thin.steps, thin.values, color=SECOND, alpha=0.12, linewidth=0)
        _finish(made.axes, lambda value: f"{value:g}", legend=False)
        made.axes.set_ylim(bottom=0)
    few = curve.thinned(20)
    rows = tuple(
        (f"{step:.0f}", f"{value:.3g}") for step, value in zip(few.steps, few.values, strict=True)
    )
    return Chart(
        "Learning rate of the weights",
        f"The rate rises to {max(known):.3g} and ends at {known[-1]:.2g}."
        if known[0] < max(known)
        else f"The rate starts at {known[0]:.3g} and ends at {known[-1]:.2g}.",
        made.svg,
        Table(("step", "learning rate"), rows),
        wide=True,
    )


def _plot(
    axes: Any, curve: Curve, label: str, color: str, *, marker: str = "", faint: bool = False
) -> None:
    thin = curve.thinned(POINTS) if faint else curve  # the best epoch lies on its curve
    if any(map(math.isfinite, thin.values)):
        looks = {"linewidth": 1.1, "alpha": 0.8} if faint else {"markersize": 4}
        few = marker if len(thin.steps) <= 40 else ""
        axes.plot(thin.steps, thin.values, color=color, label=label, marker=few, **looks)


def _finish(axes: Any, shown: Callable[[float], str], *, legend: bool = True) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_formatter(lambda value, _: shown(value))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("training steps")
    if legend and axes.get_legend_handles_labels()[0]:
        axes.figure.legend(loc="outside upper left", ncols=3, borderaxespad=0.2, handlelength=1.4)


def _told(metrics: Metrics, name: str, style: str) -> str:
    """From where to where a value goes on the validation photos, or else in training."""
    curve, where = metrics.of_epochs(f"validation_{name}"), "on the validation photos"
    if not curve.values:
        curve, where = metrics.of_epochs(name), "on the training batches"
    if not curve.values:
        return "Nothing was measured."
    if len(curve.values) == 1:
        return f"The {name} {where} is {curve.values[0]:{style}}."
    first, last = curve.values[0], curve.values[-1]
    text = f"The {name} {where} goes from {first:{style}} to {last:{style}}"
    for word, extreme in (("lowest", min(curve.values)), ("highest", max(curve.values))):
        if extreme not in (first, last):
            text += f"; the {word} is {extreme:{style}}"
    return f"{text}."


def _epochs(metrics: Metrics, name: str, style: str) -> Table:
    """The value at the end of each epoch; of many epochs, evenly spread ones."""
    count = len(metrics.epochs)
    chosen = np.linspace(0, count - 1, min(count, _ROWS)).round().astype(int)
    lines = [metrics.epochs[i] for i in chosen]
    return Table(
        ("step", f"training {name}", f"validation {name}"),
        tuple(
            (
                f"{line['step']:,}",
                _shown(line.get(name), style),
                _shown(line.get(f"validation_{name}"), style),
            )
            for line in lines
        ),
    )


def _shown(value: Any, style: str) -> str:
    return f"{value:{style}}" if isinstance(value, (int, float)) else "-"
