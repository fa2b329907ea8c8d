"""The report of a finished run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pocketune
from pocketune.device.memory.estimate import MemoryEstimate
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.display import estimate_kind
from pocketune.device.train.record import RunRecord
from pocketune.device.train.start import KEPT, RANDOM
from pocketune.device.use.held_back import count_earlier, run_photos
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError, counted
from pocketune.kit.names import METRICS
from pocketune.kit.storage import run_file
from pocketune.kit.titles import full_title, network_title
from pocketune.reporting.charts.curves import loss_chart, metric_chart, rate_chart
from pocketune.reporting.charts.memory import parts_chart, step_chart
from pocketune.reporting.evidence import Evidence, photo_sections
from pocketune.reporting.memory import parts, step_memory
from pocketune.reporting.metrics import Metrics
from pocketune.reporting.page import Page, Section, Tile
from pocketune.reporting.progress import busy, staged
from pocketune.reporting.words import (
    below_budget,
    command,
    duration,
    gain,
    interval,
    listing,
    setting,
)
from pocketune.tasks import task_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pocketune.arrays import StrPath
    from pocketune.kit.kit import Kit

_log = logging.getLogger(__name__)
_BROWSER = "onnxruntime-web"
"""Beginning of the engine's name in the record of a run that the studio's page made."""


def run_page(folder: Path, photos: StrPath | None) -> Page:
    """Everything that a report says about a run.

    Args:
        folder: The folder of a finished run, or a .zip of it.
        photos: New location of the photos, if they have moved.

    Raises:
        PocketuneError: The run is not finished or damaged, or the photos at the new location are
            not the run's.
    """
    record, model = RunRecord.read(folder), Model.open(folder)
    missing, evidence, earlier = "", None, ""
    try:
        with busy("finding the photos"):  # each mask is read
            splits = run_photos(model, photos)
        earlier = _earlier(count_earlier(model, splits.val, photos), len(splits.val))
        computed = not record.steps and record.head not in (KEPT, RANDOM)
        evidence = Evidence.gather(model, splits, computed=computed)
    except PocketuneError as error:
        if photos is not None:
            raise
        missing = f"The parts of this report that show photos are left out: {error}."
        _log.info("the parts of the report that show photos are left out: %s", error)
    with staged() as progress:
        sections = tuple(_sections(record, model, evidence, folder, progress))
    return Page(
        title=f"{record.photos.name}: {model.task.counted(len(record.classes))}",
        subtitle=f"{network_title(record.network)}, method {full_title(record.method)}",
        summary=(*_summary(record, model), *filter(None, [earlier, missing])),
        tiles=tuple(_tiles(record)),
        sections=sections,
        version=pocketune.__version__,
    )


def _sections(
    record: RunRecord,
    model: Model,
    evidence: Evidence | None,
    folder: Path,
    progress: Callable[[str, float], None],
) -> Iterator[Section]:
    """The sections of a page, in order; most of the time goes into their charts."""
    progress("drawing the curves", 0.0)
    metrics = Metrics.read(run_file(folder, METRICS) or folder / METRICS)
    if record.steps:
        yield _training(record, metrics)
    progress("drawing what the photos show", 0.3)
    yield from photo_sections(evidence) if evidence else ()
    progress("drawing the memory", 0.7)
    if record.memory_parts is not None:  # of a run in a browser, nothing is predicted
        yield _memory(record, model.kit, MemoryEstimate(**record.memory_parts))
    yield _configuration(record, folder, further=metrics.further)


def _summary(record: RunRecord, model: Model) -> Iterator[str]:
    photos = f"{record.photos.trained:,} photos in {record.photos.name}"
    yield (
        f"{network_title(record.network)} was trained on {photos} to predict "
        f"{model.task.counted(len(record.classes))}: {listing(record.classes)}."
    )
    yield _quality(record)
    machine, peak = record.machine, record.peak_memory
    yield (
        f"The run took {duration(record.seconds)} on {counted(machine.cores, 'core')} of "
        f"{machine.processor}. It took at most "
        f"{format_size(peak)} of memory, {below_budget(peak, _budget(record))}."
    )


def _quality(record: RunRecord) -> str:
    best, held = record.best, record.photos.scored
    if best is None:
        return _without_validation(record)
    value = f"{best.name} is {best.value:{best.style}}"
    text = f"On {held:,} photos that were held back, its {value}"
    if task_named(record.task).metric_is_share:
        low, high = interval(best.value, held)
        text += f" (95 % interval: {100 * low:.1f} to {100 * high:.1f} %)"
    text += ". They also chose the best step, which flatters it." if record.steps else "."
    if record.steps:
        text += f" {gain(record.start, best)}" if record.start else " The start was not measured."
    if record.refitted is not None:
        text += (
            f" Its classifier was computed again after the last step ({record.refitted} of the "
            "trained features), and is better than the one that steps had trained."
        )
    return text


def _earlier(named: int, held: int) -> str:
    """What to say of validation photos that the runs before this one were trained on."""
    if not named:
        return ""
    return (
        f"{named:,} of the {counted(held, 'validation photo')} have the names of photos that the "
        "run was trained on from which this one started: if they are the same, its scores are too "
        "good."
    )


def _without_validation(record: RunRecord) -> str:
    text, score = "No photos validated it", record.estimate
    if record.steps or score is None:
        return f"{text}, so it is not known how good the result is."
    return f"{text}. Its {score.name} is {score.value:{score.style}}, {estimate_kind(record.head)}."


def _tiles(record: RunRecord) -> Iterator[Tile]:
    if record.best is not None:
        start = ""
        if record.start is not None and record.steps:
            start = f"{record.start.value:{record.start.style}} before training"
        yield Tile(record.best.name, f"{record.best.value:{record.best.style}}", start)
    elif record.estimate is not None and not record.steps:
        score = record.estimate
        yield Tile(score.name, f"{score.value:{score.style}}", estimate_kind(record.head))
    budget = _budget(record)
    limit = f"of {format_size(budget)} allowed" if budget else "no budget"
    yield Tile("peak memory", format_size(record.peak_memory), limit)
    step = f"{duration(record.step_seconds)} a step" if record.step_seconds else "no steps"
    yield Tile("time", duration(record.seconds), step)
    best = [] if record.best is None else [f"best at {record.best_step:,}"]
    early = ["stopped early"] if record.reason == "patience" else best
    yield Tile("steps", f"{record.steps:,}", ", ".join([*early, f"batch {record.batch}"]))
    size = f"{format_size(record.result_bytes)} to keep"
    yield Tile("trained parameters", f"{record.parameters:,}", size)
    photos = record.photos
    held = f"and {photos.scored:,} for validation"
    yield Tile("training photos", f"{photos.trained:,}", held)


def _training(record: RunRecord, metrics: Metrics) -> Section:
    score = record.best
    name, style = (score.name, score.style) if score else ("accuracy", ".1%")
    charts = (
        metric_chart(metrics, name, style, record.best_step if score else None, record.start),
        loss_chart(metrics),
        rate_chart(metrics),
    )
    return Section(title="Training", charts=tuple(chart for chart in charts if chart))


def _budget(record: RunRecord) -> int | None:
    budget = record.settings["budget"]
    return None if budget is None else int(budget)


def _memory(record: RunRecord, kit: Kit, estimate: MemoryEstimate) -> Section:
    budget, measured = _budget(record), record.peak_memory
    charts = [parts_chart(parts(estimate), measured, budget)]
    text: tuple[str, ...] = ()
    over = step_memory(kit, estimate, len(record.classes))
    if over is None:
        text = (
            "The memory over a training step is left out: its tensors are known only where the "
            'author half is installed (pip install "pocketune[author]").',
        )
    else:
        charts.append(step_chart(over, measured, budget))
    return Section(title="Memory", text=text, charts=tuple(charts))


def _configuration(record: RunRecord, folder: Path, *, further: bool) -> Section:
    options = {k: v for k, v in record.settings.items() if v is not None and k != "budget"}
    facts = [
        ("network", full_title(record.network)),
        ("method", full_title(record.method)),
        ("images", f"{record.size} x {record.size} pixels, batch {record.batch}"),
        ("frozen part", f"{record.frozen_bits} bits"),
        *((name.replace("_", " "), setting(value)) for name, value in options.items()),
        ("arithmetic of a step", f"{record.step_flops / 1e9:.2f} GFLOPs"),
        ("pocketune", record.version),
        ("engine", record.engine),
        ("Python", record.machine.python),
        ("machine", f"{record.machine.processor}, {record.machine.system}"),
        ("photos", f"{record.photos.name} ({record.photos.fingerprint[:12]})"),
        ("kit", record.kit[:12]),
        ("run folder", folder.name),
    ]
    line = command(record, further=further)
    text = "KIT is the kit of the run; the run folder has a copy of its files. " * (" KIT" in line)
    text += "RUN is the run that this one was trained further from. " * further
    if record.reason == "time":
        text += "A limit of time set the length of this run, so another one may differ:"
    elif record.engine.startswith(_BROWSER):
        text += "The run was made in a browser. This one has the same settings, but other crops:"
    else:
        text += "The same photos, kit and seed on the same machine give the same result:"
    return Section(title="Repeat it", text=(text,), code=line, facts=tuple(facts))
