"""A report as a figure. It needs matplotlib, which is imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.errors import PocketuneError
from pocketune.files import writing

if TYPE_CHECKING:
    from pocketune.accounting.report import Report

FORMATS = (".svg", ".png", ".pdf")

_LAYERED = {  # from the bottom up, with colors that print and that the color-blind tell apart
    "parameters and optimizer": ("#4c5c78", "trained_parameters", "frozen_parameters",
                                 "statistics", "optimizer"),
    "images": ("#a3acba", "images"),
    "kept for the backward pass": ("#2a9d8f", "kept"),
    "gradients": ("#8ab17d", "gradients"),
    "waiting": ("#e9c46a", "residual"),
    "temporaries": ("#f4a261", "temporaries"),
    "workspace": ("#e76f51", "workspace"),
}  # fmt: skip
_INK, _GRID = "#2f3640", "#e6e8ec"


def check_figure(path: Path) -> None:
    """Check that a figure can be drawn, before what it shows is computed.

    Raises:
        PocketuneError: The ending is not one of `FORMATS`, or matplotlib is missing.
    """
    if path.suffix.lower() not in FORMATS:
        raise PocketuneError(f"{path} cannot be drawn: its name must end in {', '.join(FORMATS)}")
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise PocketuneError(
            'drawing needs matplotlib; install it with: pip install "pocketune[plot]"'
        ) from error


def save_figure(report: Report, path: Path) -> None:
    """Draw temporary, cumulative and peak memory by block, and the step from start to end.

    Args:
        report: What to draw.
        path: The file to write; its ending chooses the format.

    Raises:
        PocketuneError: See `check_figure`; or the file cannot be written.
    """
    check_figure(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1)
    _by_block(upper, report)
    _along_the_step(lower, report)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)


def _by_block(axes: Any, report: Report) -> None:
    blocks = [block for block in report.blocks if block.peak_bytes]
    draw_blocks(
        axes,
        f"{report.network}, batch {report.batch}, {report.size} px: memory by block",
        names=[block.name or "(network)" for block in blocks],
        temporary=[block.temporary_bytes for block in blocks],
        kept=[block.cumulative_kept_bytes for block in blocks],
        peaks=[block.peak_bytes for block in blocks],
    )


def draw_blocks(
    axes: Any,
    title: str,
    *,
    names: Sequence[str],
    temporary: Sequence[int],
    kept: Sequence[int],
    peaks: Sequence[int],
) -> None:
    """The figure of the pruned Rep-Net paper: what a block needs, and what is kept already.

    Args:
        axes: Of matplotlib.
        title: Written above.
        names: Of the blocks.
        temporary: Bytes that each block needs while it runs.
        kept: Bytes that are kept for the backward pass when it is done.
        peaks: The most bytes that are held at once meanwhile.
    """
    places = range(len(names))
    bars = (("temporary", "#f4a261", temporary), ("kept so far", "#2a9d8f", kept))
    for number, (label, color, sizes) in enumerate(bars):
        left = [place + (number - 0.5) * 0.38 for place in places]
        axes.bar(left, _megabytes(sizes), 0.36, color=color, label=label)
    heights = _megabytes(peaks)
    axes.plot(places, heights, "o-", color=_INK, markersize=4, linewidth=1.2, label="peak")
    worst = heights.index(max(heights))
    axes.annotate(
        f"{heights[worst]:,.1f} MB", (worst, heights[worst]), (0, 7), textcoords="offset points",
        ha="center", color=_INK, fontweight="bold",
    )  # fmt: skip
    axes.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_xlim(-0.7, len(names) - 0.3)
    finish(axes, title, max(heights))


def _along_the_step(axes: Any, report: Report) -> None:
    """All memory, category by category, at each operator."""
    snapshots = report.timeline
    edges = range(len(snapshots) + 1)
    floor = [0.0] * (len(snapshots) + 1)
    for label, (color, *names) in _LAYERED.items():
        sizes = [sum(getattr(snapshot.memory, name) for name in names) for snapshot in snapshots]
        if not any(sizes):
            continue
        steps = _megabytes([*sizes, sizes[-1]])
        ceiling = [low + high for low, high in zip(floor, steps, strict=True)]
        axes.fill_between(edges, floor, ceiling, step="post", color=color, label=label, lw=0)
        floor = ceiling
    backward = next(i for i, snapshot in enumerate(snapshots) if snapshot.phase == "backward")
    axes.axvline(backward, color=_INK, linewidth=0.8, linestyle=(0, (4, 3)))
    peak = max(range(len(snapshots)), key=lambda i: snapshots[i].memory.total)
    axes.plot([peak + 0.5], [floor[peak]], "v", color=_INK, markersize=6)
    axes.set_xlim(0, len(snapshots))
    axes.set_xticks([backward / 2, (backward + len(snapshots)) / 2], ["forward", "backward"])
    axes.tick_params(axis="x", length=0)
    place = snapshots[peak].layer or "the network itself"
    title = f"The step from start to end: {max(floor):,.1f} MB at {place}, {snapshots[peak].phase}"
    finish(axes, title, max(floor))


def finish(axes: Any, title: str, highest: float, *, unit: str = "MB") -> None:
    """Give a figure its title, its legend and a vertical axis from 0 to above `highest`."""
    axes.set_title(title, loc="left", color=_INK, fontweight="bold", fontsize=11, pad=28)
    axes.set_ylabel(unit, color=_INK)
    axes.set_ylim(0, highest * 1.12)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_GRID)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0, colors=_INK)
    axes.legend(
        frameon=False, fontsize=8, ncols=len(_LAYERED), loc="lower left", bbox_to_anchor=(-0.01, 1),
        borderaxespad=0.2, handlelength=1.2, columnspacing=1.4,
    )  # fmt: skip


def _megabytes(sizes: Sequence[int]) -> list[float]:
    return [size / 1e6 for size in sizes]
