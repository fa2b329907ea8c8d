"""The reliability diagram: how often a model is right that says how sure it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketune.errors import counted
from pocketune.reporting.charts.style import FIRST, GRID, LIMIT, MUTED, Chart, drawing
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from pocketune.reporting.calibration import Calibration


def reliability_chart(found: Calibration) -> Chart:
    """Accuracy by confidence beside the line where both agree; below, how many decisions."""
    bins = [each for each in found.bins if each.count]
    most = max(each.count for each in bins)
    with drawing(height=3.4) as made:
        axes = made.axes
        for each in bins:
            middle, width = (each.low + each.high) / 2, each.high - each.low
            axes.bar(middle, each.accuracy, width * 0.88, color=FIRST, alpha=0.85)
            axes.bar(middle, -0.22 * each.count / most, width * 0.88, bottom=-0.06, color=MUTED)
            low, high = sorted((each.accuracy, each.confidence))
            if high - low > 0.01:
                axes.plot([middle] * 2, [low, high], color=LIMIT, linewidth=2)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.axhline(-0.06, color=GRID, linewidth=0.8)
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.3, 1.02)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel("confidence")
        axes.set_ylabel("fraction right")
    rows = tuple(
        (
            f"{each.low:.0%} to {each.high:.0%}",
            f"{each.count:,}",
            f"{each.confidence:.1%}",
            f"{each.accuracy:.1%}",
        )
        for each in bins
    )
    return Chart(
        "Is it as sure as it should be?",
        _judgment(found),
        made.svg,
        Table(("confidence", "decisions", "mean confidence", "right"), rows),
    )


def _judgment(found: Calibration) -> str:
    apart = found.confidence - found.accuracy
    decisions = sum(each.count for each in found.bins)
    if found.error < 0.03:
        word = "Confidence can be taken at its word"
    elif abs(apart) >= max(0.02, found.apart_by_chance):
        word = f"The model is {'too sure' if apart > 0 else 'not sure enough'} of itself"
    elif found.error > found.chance:
        word = "Confidence is off in both directions"
    else:
        word = f"{counted(decisions, 'decision')} cannot tell whether confidence is off"
    return (
        f"{word}: it is {found.confidence:.1%} sure on average and right {found.accuracy:.1%} of "
        f"the time. The expected calibration error is {100 * found.error:.1f} points "
        f"({len(found.bins)} bins). Red lines are the gaps; gray bars count the decisions."
    )
