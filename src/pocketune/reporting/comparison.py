"""The report of a comparison: a row for each model and method, and what memory buys."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pocketune
from pocketune.comparison.cell import configuration
from pocketune.comparison.result import Comparison
from pocketune.comparison.tables import without_gain
from pocketune.device.memory.sizes import format_size
from pocketune.errors import counted
from pocketune.kit.titles import full_title
from pocketune.reporting.charts.bubbles import Bubble, bubble_chart
from pocketune.reporting.charts.style import Chart
from pocketune.reporting.page import Page, Section, Tile
from pocketune.reporting.words import duration, listing
from pocketune.tasks import task_named
from pocketune.tasks.results import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pocketune.comparison.row import Row
    from pocketune.device.train.record import RunRecord


def comparison_page(path: Path) -> Page:
    """Everything that a report says about a comparison.

    Args:
        path: The file of the comparison, or its folder.

    Raises:
        PocketuneError: The file cannot be read, is damaged or of another version.
    """
    found = Comparison.read(path)
    rows = found.rows
    sets, models, methods = (
        tuple(dict.fromkeys(getattr(row, name) for row in rows))
        for name in ("photos", "model", "method")
    )
    records = [record for row in rows for record in row.records]
    return Page(
        title=f"{counted(len(rows), 'way')} to train, compared",
        subtitle=f"on {listing(sets)}",
        summary=(
            f"{_compared(models, methods)} on {listing(sets)}: "
            f"{counted(len(records), 'run')}, each in a process of its own.",
            *(_best(name, _of(rows, name)) for name in sets),
            *filter(None, [without_gain(rows)]),
            *([f"{counted(len(found.failed), 'run')} failed."] if found.failed else []),
        ),
        tiles=tuple(_tiles(found, records)),
        sections=(
            *(_set(name, _of(rows, name)) for name in sets),
            *_failures(found),
            *_machines(records),
        ),
        version=pocketune.__version__,
    )


def _of(rows: Iterable[Row], photos: str) -> list[Row]:
    """The rows of a set of photos, the best first; those without a finished run last."""
    own = [row for row in rows if row.photos == photos]
    sign = 1 if _larger_is_better(own) else -1
    return sorted(own, key=lambda row: (row.mean is None, -sign * (row.mean or 0)))


def _larger_is_better(rows: Iterable[Row]) -> bool:
    record = next((record for row in rows for record in row.records), None)
    return record is None or task_named(record.task)(record.classes).larger_is_better


def _compared(models: Sequence[str], methods: Sequence[str]) -> str:
    if models == methods:  # kits that have the names of their methods
        return f"{counted(len(models), 'kit')} ({listing(models)})"
    return (
        f"{counted(len(models), 'network')} ({listing(models)}) with "
        f"{counted(len(methods), 'method')} ({listing(methods)})"
    )


def _name(row: Row) -> str:
    return configuration(row.model, row.method)


def _score(row: Row) -> str:
    if row.mean is None:
        return "failed"
    spread = f" ± {row.spread:{row.style}}".removesuffix("%") if row.spread is not None else ""
    return f"{row.mean:{row.style}}{spread}"


def _best(photos: str, rows: list[Row]) -> str:
    first = rows[0]
    if first.mean is None or first.peak_memory is None:
        return f"On {photos}, no run was finished."
    text = (
        f"On {photos}, {_name(first)} is best: {first.metric} {_score(first)} on the {first.part} "
        f"photos, with {format_size(first.peak_memory)} of memory"
    )
    least = min((row for row in rows if row.peak_memory), key=lambda row: row.peak_memory or 0)
    if least is first:
        text += ", the least of all"
    elif least.peak_memory is not None:
        text += (
            f". {_name(least)} takes least, {format_size(least.peak_memory)}, and reaches "
            f"{_score(least)}"
        )
    if equals := [_name(row) for row in rows[1:] if _may_be_chance(first, row)]:
        text += f". By these runs, as good as the best may be: {'; '.join(equals)}"
    return f"{text}."


def _may_be_chance(one: Row, other: Row) -> bool:
    """Whether the difference of the means is within two standard errors.

    The error is that of the runs, or of the photos where there are single runs.
    """
    if one.mean is None or other.mean is None:
        return False
    if one.spread is not None and other.spread is not None:
        variance = sum(row.spread**2 / len(row.scores) for row in (one, other) if row.spread)
    elif task_named(one.records[0].task).metric_is_share:
        variance = sum(mean * (1 - mean) / one.images for mean in (one.mean, other.mean))
    else:
        return False
    return abs(one.mean - other.mean) <= 2 * math.sqrt(variance)


def _tiles(found: Comparison, records: list[RunRecord]) -> Iterator[Tile]:
    failed = f"{len(found.failed)} failed" if found.failed else "none failed"
    yield Tile("runs", f"{len(records):,}", failed)
    if records:
        yield Tile("time of all runs", duration(sum(record.seconds for record in records)))
        peaks = [record.peak_memory for record in records]
        yield Tile("peak memory", format_size(max(peaks)), f"at least {format_size(min(peaks))}")


def _set(photos: str, rows: list[Row]) -> Section:
    return Section(
        title=photos,
        charts=tuple(_bubbles(rows)),
        tables=(("All figures", _table(rows)),),
        unfolded=True,
    )


def _bubbles(rows: list[Row]) -> Iterator[Chart]:
    bubbles = [
        Bubble(
            name=_name(row),
            peak=row.peak_memory,
            value=row.mean,
            flops=row.records[0].step_flops,
            group=row.model,
            chosen=row is rows[0],
            spread=row.spread or 0.0,
        )
        for row in rows
        if row.mean is not None and row.peak_memory is not None
    ]
    if bubbles:
        better = _larger_is_better(rows)
        yield bubble_chart(
            bubbles, metric=rows[0].metric, style=rows[0].style, larger_is_better=better
        )


def _table(rows: list[Row]) -> Table:
    titles = (
        "model", "method", rows[0].metric, "runs", "improved", "peak", "a step", "GFLOPs a step",
        "trained", "to keep",
    )  # fmt: skip
    return Table(titles, tuple(map(_cells, rows)))


def _cells(row: Row) -> tuple[str, ...]:
    record = row.record
    return (
        row.model,
        row.method,
        _score(row),
        row.runs,
        "-" if row.improved is None else str(row.improved),
        format_size(row.peak_memory) if row.peak_memory else "-",
        duration(row.step_seconds) if row.step_seconds else "-",
        f"{record.step_flops / 1e9:,.2f}" if record else "-",
        f"{record.parameters:,}" if record else "-",
        format_size(record.result_bytes) if record else "-",
    )


def _failures(found: Comparison) -> Iterator[Section]:
    if found.failed:
        rows = tuple((cell.name, cell.error or "") for cell in found.failed)
        table = Table(("run", "reason"), rows)
        yield Section(title="Failed runs", tables=(("Reasons", table),), unfolded=True)


def _machines(records: list[RunRecord]) -> Iterator[Section]:
    """What the runs have in common; what differs between them is counted."""
    if not records:
        return
    values = {
        "machine": {f"{r.machine.cores} cores of {r.machine.processor}" for r in records},
        "engine": {r.engine for r in records},
        "pocketune": {r.version for r in records},
        "Python": {r.machine.python for r in records},
        "image size": {f"{r.size} px" for r in records},
        "images in a step": {str(r.batch) for r in records},
        "seeds": {str(r.seed) for r in records},
        "networks": {full_title(r.network) for r in records},
    }
    facts = tuple((name, "; ".join(sorted(each))) for name, each in values.items())
    yield Section(title="How it was measured", facts=facts)
