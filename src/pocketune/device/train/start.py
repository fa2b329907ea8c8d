"""The values that a run starts from: the kit's, with a classifier that suits the photos."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Purpose, random_stream
from pocketune.device.head import Head, fit_head
from pocketune.device.head.cells import CellFit, cell_channels
from pocketune.device.head.embeddings import Embeddings, embedded, write_embeddings
from pocketune.device.head.fit import means_bytes
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.estimate import cell_fit_bytes
from pocketune.device.memory.process import process_memory, reclaim
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.limit import head_seconds
from pocketune.device.train.photos import has_closed_form
from pocketune.device.train.progress import PhotosReport
from pocketune.device.use.model import Model
from pocketune.heap import freed_at_once
from pocketune.kit.names import EMBEDDINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pocketune.arrays import State
    from pocketune.device.cache.opening import FeatureCache
    from pocketune.device.engine.base import Engine, EngineFactory
    from pocketune.device.train.folder import Run
    from pocketune.device.train.progress import Progress
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Labels, Score, Task

KEPT, RANDOM = "kept", "random"

_PURPOSE = "classifier from the photos"


@dataclass(frozen=True)
class Start:
    """Where the classifier of a run comes from.

    Attributes:
        head: `class means`, `LDA` or `ridge` of the photos; `kept` from the kit or run that
            the training began with; or `random`.
        images: Training photos that it was computed from.
        estimate: Its cross-validated score on these; for a kept one, its score. None if unknown.
    """

    head: str
    images: int = 0
    estimate: Score | None = None


def start_values(
    run: Run, origin: Kit, make: EngineFactory, progress: Progress, cache: FeatureCache
) -> tuple[State, Start]:
    """The values that a run starts from.

    They are those of `origin`, a kit or a run. The classifier is computed from the training
    photos, whose features `cache` keeps. If they have the classes that the classifier of `origin`
    is for, that one is kept where it is better on them.

    Raises:
        BudgetExceeded: The run makes no steps, and its budget has no room to compute a classifier.
        PocketuneError: None of the training photos can be decoded.
    """
    manifest, photos = run.manifest, run.photos.splits.train
    kept = run.identity.classes == Model.of(origin).classes
    start = Start(KEPT if kept else RANDOM)

    def show(done: int, seconds_left: float) -> None:
        progress.photos(PhotosReport(_PURPOSE, done, len(photos), seconds_left))

    if run.settings.head_start == "random":
        return _values(run, origin), start
    if manifest.task.dense:
        return _of_pixels(run, origin, make, start, progress, show)
    if not has_closed_form(manifest, photos):
        return _values(run, origin), start
    return _of_embeddings(run, origin, make, start, cache, show)


def _of_embeddings(
    run: Run,
    origin: Kit,
    make: EngineFactory,
    start: Start,
    cache: FeatureCache,
    show: Callable[[int, float], None],
) -> tuple[State, Start]:
    """The same for whole images: the classifier is that of their embeddings."""
    size = run.manifest.embeddings or 0

    def write(path: Path) -> Labels:
        engine = make(run.kit, _values(run, origin))
        photos = cache.photos(run.photos, engine).sample
        written = write_embeddings(engine, photos, path, show, head_seconds(run))
        if not len(written):
            raise photos.undecodable()
        return written

    with embedded(run.folder / EMBEDDINGS, size, write) as embeddings:
        reclaim()
        with freed_at_once():
            head = fit_head(embeddings.blocks, run.photos.task, room=head_room(run))
        values = _values(run, origin)
        if start.head == KEPT:
            score = _score(values, embeddings, run.photos.task)
            if not _is_better(head, score, run):
                return values, replace(start, images=len(embeddings), estimate=score)
    if head is None:
        if not run.steps:
            _refuse(run, means_bytes(size, len(run.identity.classes)))
        return values, start
    weight, bias = run.manifest.task.head
    values.update({weight: head.weight, bias: head.bias})
    return values, Start(head.name, len(embeddings), head.score)


def _of_pixels(
    run: Run,
    origin: Kit,
    make: EngineFactory,
    start: Start,
    progress: Progress,
    show: Callable[[int, float], None],
) -> tuple[State, Start]:
    """The same for masks: the classifier is that of the cells of feature maps."""
    values, manifest = _values(run, origin), run.manifest
    channels = cell_channels(manifest, trained=origin.is_run)
    if channels is None:
        if cell_channels(manifest, trained=True):
            progress.note(
                "the classifier is not computed from the photos, because the decode head below it "
                "is random and will change"
            )
        return values, start
    room, taken = head_room(run), cell_fit_bytes(manifest, channels, len(run.identity.classes))
    if room is not None and room < taken:
        if not run.steps:
            _refuse(run, taken)
        return values, start
    weight, bias = manifest.task.head
    copying = {
        weight: np.eye(channels, dtype=np.float32)[..., None, None],
        bias: np.zeros(channels, np.float32),
    }
    fit = _fit_cells(run, make(run.kit, {**values, **copying}), channels, show)
    reclaim()
    with freed_at_once():
        head = fit.head()
        if start.head == KEPT:
            score = fit.score(values[weight][..., 0, 0], values[bias])
            if not _is_better(head, score, run):
                return values, replace(start, images=fit.photos, estimate=score)
    if head is None:
        return values, start
    values.update({weight: head.weight[..., None, None], bias: head.bias})
    return values, Start(head.name, fit.photos, head.score)


def _fit_cells(
    run: Run, engine: Engine, channels: int, show: Callable[[int, float], None]
) -> CellFit:
    """The cells of the training photos, or of those that there is time for.

    Args:
        run: The run.
        engine: Its classifier gives what it reads, the maps. Each photo is computed alone, since
            maps may be large.
        channels: Of the maps.
        show: Called after each batch with the number of photos and the expected seconds left.
    """
    photos, seconds, began = run.photos.sample, head_seconds(run), time.monotonic()
    fit = CellFit(run.photos.task, channels, len(photos.dataset))
    with closing(photos.epoch(0)) as batches:
        for batch in batches:
            for number, label in enumerate(batch.labels):
                fit.add(engine.predict(batch.images[number : number + 1])[0], label)
            taken = time.monotonic() - began
            whole = taken / max(1, fit.photos) * len(photos.dataset)
            show(fit.photos, max(0.0, min(whole, seconds) - taken))
            if taken >= seconds:
                break
    if not fit.photos:
        raise photos.undecodable()
    engine.release()
    return fit


def _values(run: Run, origin: Kit) -> State:
    """The values of `origin`; the output layer is drawn at random if it is for other classes."""
    model, classes = Model.of(origin), run.identity.classes
    if classes == model.classes:
        return model.state
    rng = random_stream(run.settings.seed, Purpose.CLASSIFIER)
    return run.manifest.task.new_head(model.state, len(classes), rng)


def head_room(run: Run) -> int | None:
    """Bytes that the budget leaves; None for no limit."""
    budget = run.settings.budget_bytes
    return None if budget is None else budget - process_memory().current


def _refuse(run: Run, taken: int) -> None:
    """Refuse a run without steps whose budget has no room for a classifier of its photos."""
    room, budget = head_room(run), run.settings.budget_bytes
    if room is None or budget is None:
        return
    classes = len(run.identity.classes)
    needed = budget - room + taken
    raise BudgetExceeded(
        f"the budget of {format_size(budget)} has no room to compute a classifier of {classes} "
        f"classes, which takes about {format_size(needed)}; give a larger budget, or a number of "
        "epochs to train one that is drawn at random"
    )


def _score(values: State, embeddings: Embeddings, task: Task) -> Score:
    """The score of the classifier in `values`."""
    weight, bias = (values[name] for name in task.head)
    metric = task.metric()
    for rows, labels in embeddings.blocks():
        metric.update(rows @ weight.T + bias, labels)
    return metric.score


def _is_better(head: Head | None, kept: Score, run: Run) -> bool:
    """Whether a classifier was computed whose score is better than that of the kept one."""
    score = None if head is None else head.score
    return score is not None and run.photos.task.is_better(score, kept)
