"""Train a kit on photos into a run folder, or resume a run that was stopped."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketune.arithmetic import usual_arithmetic
from pocketune.arrays import StrPath
from pocketune.data.copies import describe_copies
from pocketune.device.cache.choice import cache_bytes, choose
from pocketune.device.cache.opening import FeatureCache, feature_cache
from pocketune.device.memory.budget import check_budget
from pocketune.device.memory.estimate import with_description
from pocketune.device.memory.process import ProcessMemory, process_memory, reclaim
from pocketune.device.memory.sizes import format_size, parse_size
from pocketune.device.train.checkpoint import TrainState, trained_names
from pocketune.device.train.checks import (
    check_accumulation,
    check_balance,
    check_patience,
    check_rates,
    check_warmup,
)
from pocketune.device.train.describe import describe_known
from pocketune.device.train.display import console, estimate_kind
from pocketune.device.train.folder import (
    Run,
    RunIdentity,
    new_run_folder,
    next_run,
    open_run_folder,
)
from pocketune.device.train.interrupt import Interrupted, StopRequest, stoppable
from pocketune.device.train.limit import within
from pocketune.device.train.log import MetricsFile, RunLog, read_log
from pocketune.device.train.loop import Loop
from pocketune.device.train.photos import (
    Photos,
    is_linear,
    makes_no_steps,
    mask_options,
    masks_of,
)
from pocketune.device.train.progress import Progress, closed_on_error
from pocketune.device.train.record import RunRecord
from pocketune.device.train.refit import is_refitted
from pocketune.device.train.resuming import find_photos, open_checkpoint
from pocketune.device.train.settings import TrainSettings
from pocketune.device.train.state import new_state, restored_state
from pocketune.errors import OutOfMemory, PocketuneError, Remedy, counted
from pocketune.heap import save_memory
from pocketune.kit.kit import Kit
from pocketune.kit.names import LAST, METRICS
from pocketune.notebook import Readable
from pocketune.options import takes_options, with_options
from pocketune.processes.signals import signal_of

if TYPE_CHECKING:
    from threading import Event

    from pocketune.data import Skipped
    from pocketune.device.engine.base import EngineFactory
    from pocketune.device.memory.estimate import MemoryEstimate
    from pocketune.device.train.checkpoint import Counters
    from pocketune.device.train.events import EventFile
    from pocketune.tasks import Score


_NO_STEPS = (
    "steps  none by default for so few photos: the classifier is computed from all of them; set "
    "epochs to make some"
)


@dataclass(frozen=True)
class TrainResult(Readable):
    """The result of a run.

    Attributes:
        run: The run folder, which `predict`, `evaluate` and `export` take.
        classes: Class names in the order of the logits.
        steps: Completed optimizer steps.
        reason: `steps` if all steps were made, `patience` if the run stopped early, `time` if
            the limit of time left room for fewer.
        best_step: The step of the values in `best.safetensors`.
        best: Score of these values on the validation photos; None without validation photos.
        peak_memory: Peak resident bytes of the process, the largest if the run was resumed.
        skipped: Files that were skipped, each with the reason.
        start: Score on the validation photos before the first step; None without validation photos.
        head: Where the classifier came from: `class means`, `LDA` or `ridge` of the photos,
            `kept` from the kit or run, or `random`.
        estimate: Cross-validated score of the computed classifier on the training photos; of a kept
            one, its score. None if it is unknown.
    """

    run: Path
    classes: tuple[str, ...]
    steps: int
    reason: str
    best_step: int
    best: Score | None
    peak_memory: int
    skipped: tuple[Skipped, ...]
    start: Score | None = None
    head: str = "random"
    estimate: Score | None = None

    def __str__(self) -> str:
        told = [f"{self.run}: {counted(self.steps, 'step')}"]
        if self.best is not None:
            told.append(f"validation {self.best} at step {self.best_step}")
        elif self.estimate is not None:
            told.append(f"{estimate_kind(self.head)} {self.estimate}")
        return ", ".join([*told, f"peak memory {format_size(self.peak_memory)}"])


@takes_options(TrainSettings)
@usual_arithmetic
def train(
    kit: Kit | StrPath,
    photos: StrPath,
    out: StrPath | None = None,
    settings: TrainSettings | None = None,
    *,
    engine: EngineFactory | None = None,
    progress: Progress | None = None,
    stop: Event | None = None,
    seconds: float = math.inf,
    most: int | None = None,
    **options: Any,
) -> TrainResult:
    """Fine-tune a kit on labeled photos.

    Nothing is written outside `out`. Training starts from the kit's values, or from the trained
    values if `kit` is a run. If the photos have other classes, the output layer is replaced.

    Example:
        >>> train("kit/", "photos/", budget="96MB")  # doctest: +SKIP
        >>> train("kit/", "photos/", "runs/flowers", TrainSettings(epochs=5))  # doctest: +SKIP

    Args:
        kit: A kit or a run, or the path of one.
        photos: A folder of class folders, a CSV of file and label or of file and attributes (for
            a kit of that task), folders or a CSV of images and masks (for a kit of segmentation),
            or a .zip of these.
        out: The run folder to create; by default `runs/` and the name of the photos.
        settings: The settings of the run.
        engine: Makes the engine that computes gradients; ONNX Runtime by default.
        progress: The progress display; standard output by default. What it raises ends the run,
            which can be resumed from its last checkpoint.
        stop: Set it in another thread to stop the run as Ctrl-C does: after the current step, the
            run is saved and `Interrupted` is raised.
        seconds: Limit of time. The run makes as many steps as fit, at most those of the settings;
            if the machine gets slower, it ends early with the best values so far.
        most: Train on at most so many of the photos, for a short trial. At most as many validate,
            and nothing is written about the classes.
        options: Fields of `TrainSettings`, which take precedence over `settings`.

    Raises:
        Interrupted: The user pressed Ctrl-C, or `stop` was set; the run is saved and can be
            resumed, unless this is a `NothingKept`.
        BudgetExceeded: The run will not fit the budget, or has exceeded it.
        Diverged: The loss or a gradient is no longer finite.
        OutOfMemory: The system refused memory; the run is saved and can be resumed.
        PocketuneError: Another problem with the kit, the photos, the settings or the disk.
        TypeError: An option is unknown.
    """
    began = time.monotonic()
    save_memory()
    asked = with_options(settings or TrainSettings(), options)
    opened = kit if isinstance(kit, Kit) else Kit.open(kit)
    factory, folder = engine or _onnx_engine(), Path(out or next_run(photos))
    shown = progress or console()
    found, settings = _prepared(photos, asked, opened, shown, most)
    reclaim()
    memory = _checked_memory(opened, settings, found, process_memory())
    budget = settings.budget_bytes
    settings, note = choose(
        settings,
        found,
        opened.manifest,
        folder,
        prepares=hasattr(factory, "prepare"),
        room=None if budget is None else budget - memory.total + memory.head,
    )
    memory = _with_photos(memory, settings, found, opened)
    with new_run_folder(folder):
        copy = opened.copy_to(folder)
        identity = RunIdentity(copy.identity, found.fingerprint(), found.classes)
        earlier, deadline = trained_names(opened), began + seconds
        run = Run(copy, settings, found, identity, memory, began, deadline, earlier=earlier)
        steps = None if asked.length_is_given or settings.epochs else _NO_STEPS
        for told in filter(None, (*_about_photos(run), steps, note)):
            shown.note(told)
        with feature_cache(run, shown.note) as cache:
            with closing(shown):
                state = new_state(run, opened, factory, stoppable(shown, stop), cache)
                whole, run = run, within(run, state.engine, refits=is_refitted(run))
            if run.shortened and math.isfinite(run.deadline):
                shown.note(_limited(whole, run))
            return _run_to_end(run, state, shown, cache, stop)


@usual_arithmetic
def resume(
    run: StrPath,
    photos: StrPath | None = None,
    *,
    budget: str | int | None = None,
    engine: EngineFactory | None = None,
    progress: Progress | None = None,
    stop: Event | None = None,
) -> TrainResult:
    """Resume a run from its last checkpoint; it ends as if it had never been stopped.

    Args:
        run: The run folder.
        photos: New location of the photos, if they have moved.
        budget: New limit of the peak resident memory; by default the limit does not change.
        engine: Makes an engine of the same kind as before; ONNX Runtime by default.
        progress: The progress display; standard output by default.
        stop: Set it in another thread to stop the run again; see `train`.

    Raises:
        PocketuneError: The folder is not a run, the run is complete, another process is training
            it, or the kit or the photos have changed since it started.
        Interrupted, BudgetExceeded, Diverged: See `train`.
    """
    save_memory()
    began, folder, factory = time.monotonic(), Path(run), engine or _onnx_engine()
    shown = progress or console()
    with open_run_folder(folder) as kit:
        reclaim()
        before = process_memory()
        checkpoint = open_checkpoint(kit, folder)
        settings = checkpoint.settings
        if budget is not None:
            settings = replace(settings, budget=parse_size(budget))
        with closed_on_error(shown):
            found = find_photos(checkpoint, photos, settings, kit, shown.counting("masks"))
        memory = _checked_memory(kit, settings, found, before)
        memory = _with_photos(memory, settings, found, kit)
        resumed = Run(
            kit,
            settings,
            found,
            checkpoint.identity,
            memory,
            began,
            shortened=checkpoint.shortened,
            earlier=checkpoint.earlier,
        )
        with feature_cache(resumed, shown.note) as cache:
            state = restored_state(checkpoint, resumed, factory)
            return _run_to_end(resumed, state, shown, cache, stop)


def _prepared(
    photos: StrPath, asked: TrainSettings, kit: Kit, shown: Progress, most: int | None
) -> tuple[Photos, TrainSettings]:
    """The photos of a run, and its settings with what follows from photos and kit in place of None.

    Raises:
        PocketuneError: The photos cannot be used, or a setting has no effect on them or the kit.
    """
    settings, masks = asked, mask_options(asked)
    check_accumulation(kit, settings.accumulate)
    check_rates(kit, settings)
    if kit.manifest.task.dense:
        masks = masks_of(kit, masks).with_names()
        settings = replace(
            settings,
            class_weights=settings.class_weights or "balanced",
            ignore=masks.ignore,
            class_names=masks.class_names,
        )
    reclaim()  # what was imported makes room for the list of the photos
    load = partial(Photos.open, photos, kit=kit, most=most, masks=masks)
    with closed_on_error(shown):
        found = load(settings=settings, after_mask=shown.counting("masks"))
        if is_linear(kit.manifest) and makes_no_steps(found.splits, settings):
            settings = replace(settings, epochs=0, val_fraction=0.0)
            found = load(settings=settings)
    check_patience(found, settings)
    check_balance(found, settings, kit)
    settings = _resolved(settings, found, kit)
    if most is None:  # a trial may end within the warm-up of the run that it is for
        check_warmup(found, settings)
    return found, settings


def _resolved(settings: TrainSettings, found: Photos, kit: Kit) -> TrainSettings:
    """The settings with what follows from the photos and the kit in place of None."""
    if settings.decode_lr is None and kit.is_run:  # its decode head is no longer random
        rate = settings.peak_rates(found.training.batch).main
        settings = replace(settings, decode_lr=rate)
    return settings.resolved(
        images=found.training.batch,
        steps_per_epoch=len(found.training),
        validation=len(found.splits.val),
        photos=None if kit.manifest.task.dense else len(found.splits.train),
        imbalance=found.imbalance if is_linear(kit.manifest) else 1.0,
    )


def _about_photos(run: Run) -> tuple[str | None, ...]:
    """Lines about the photos of a new run; None for what there is nothing to say of."""
    photos, whole_set = run.photos, run.photos.most is None
    copied = describe_copies(photos.splits) if whole_set else None
    return (
        photos.describe(),
        photos.describe_alike(),
        photos.describe_untested() if whole_set else None,
        copied and f"copies  {copied}",
        photos.describe_seen(run.earlier),
    )


def _limited(whole: Run, run: Run) -> str:
    """A line about a run whose limit of time leaves room for a part of it."""
    return (
        f"time  the limit leaves room for {run.steps:,} of {counted(whole.steps, 'step')}, which "
        f"are {run.epochs} of {counted(whole.epochs, 'epoch')}"
    )


def _checked_memory(
    kit: Kit, settings: TrainSettings, found: Photos, before: ProcessMemory
) -> MemoryEstimate:
    """The memory that training on these photos will take, refused if it exceeds the budget."""
    return check_budget(
        kit,
        settings,
        classes=len(found.classes),
        images=len(found.splits.train),
        before=before,
        decoding=found.splits.decoding,
    )


def _with_photos(
    memory: MemoryEstimate, settings: TrainSettings, found: Photos, kit: Kit
) -> MemoryEstimate:
    """The memory of a run with what it keeps of its photos, and with the description in the end."""
    splits = found.splits
    return with_description(
        memory.with_cache(cache_bytes(settings, found, kit.manifest)),
        kit.manifest,
        classes=len(found.classes),
        photos=max(len(splits.train), len(splits.val)),
        decoding=splits.decoding,
    ).within(settings.budget_bytes)


def _run_to_end(
    run: Run,
    state: TrainState,
    shown: Progress,
    cache: FeatureCache,
    asked: Event | None,
) -> TrainResult:
    """Make the steps that are left, describe the classes, and give the result."""
    run = replace(run, photos=cache.photos(run.photos, state.engine))
    metrics = MetricsFile(run.folder / METRICS, keep=state.counters.metrics_bytes)
    before = read_log(metrics.path).seconds
    with (
        closing(metrics),
        closing(shown),
        _events(run, state) as events,
        StopRequest(asked) as stop,
    ):
        try:
            log = RunLog(run, metrics, shown, before, events)
            Loop(run, state, log, stop).run()
        except KeyboardInterrupt as again:  # an update may be incomplete, so do not save
            what = "stopped immediately; the last checkpoint is kept"
            raise Interrupted(what, str(run.folder), stop.number or signal_of(again)) from None
        except MemoryError as error:
            what = f"the system refused memory in step {state.counters.step + 1:,}; allow more"
            raise _resumable(OutOfMemory(what), run.folder) from error
        except PocketuneError as error:
            raise _resumable(error, run.folder) from error.__cause__
    counters = state.counters
    if run.photos.most is None and (counters.finished != "time" or counters.step >= run.steps):
        with closing(shown):
            _describe(run, state, shown, cache, asked)
    return _result(run, counters)


def _result(run: Run, counters: Counters) -> TrainResult:
    """The result of a run that has ended, whose record is updated."""
    record = RunRecord.read(run.folder)
    peak = max(record.peak_memory, process_memory().peak)
    if peak > record.peak_memory:  # what came after the last step counts too
        replace(record, peak_memory=peak).write(run.folder)
    return TrainResult(
        run=run.folder,
        classes=run.identity.classes,
        steps=counters.step,
        reason=counters.finished or "",
        best_step=counters.best_step,
        best=counters.best,
        peak_memory=peak,
        skipped=run.photos.skipped,
        start=counters.start,
        head=counters.head,
        estimate=counters.estimate,
    )


def _resumable(error: PocketuneError, folder: Path) -> PocketuneError:
    """The error, with the remedy to go on where the machine's memory or disk refused something."""
    refused = isinstance(error, MemoryError) or isinstance(error.__cause__, OSError)
    if not refused or error.remedy is not None or not (folder / LAST).is_file():
        return error
    error.remedy = Remedy("resume", "resume with: pocketune.resume({run!r})", run=str(folder))
    return error


def _describe(
    run: Run, state: TrainState, shown: Progress, cache: FeatureCache, asked: Event | None
) -> None:
    try:
        describe_known(run, state, stoppable(shown, asked))
    except KeyboardInterrupt as stop:
        what = (
            f"stopped after the last step: the run in {run.folder} is complete, but cannot tell "
            "photos of none of its classes"
        )
        raise Interrupted(what, str(run.folder), signal_of(stop), complete=True) from None
    finally:
        cache.discard()  # the run is complete and cannot be resumed


def _events(run: Run, state: TrainState) -> AbstractContextManager[EventFile | None]:
    """The event file of this process, if the user asked for one."""
    if run.settings.logger != "tensorboard":
        return nullcontext()
    from pocketune.device.train.events import EventFile

    step = state.counters.step
    return closing(EventFile(run.folder, step + 1 if step else 0))


def _onnx_engine() -> EngineFactory:
    # Imported here, because runs on another engine do not need the runtime; and before memory is
    # measured, because the runtime is part of it.
    from pocketune.device.engine.onnx import OnnxEngine

    return OnnxEngine
