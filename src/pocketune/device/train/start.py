"""The values that a run starts from: the kit's, with a classifier that suits the photos."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pocketune.data import Purpose, random_stream
from pocketune.device.head import Head, fit_head
from pocketune.device.head.embeddings import Embeddings, embedded
from pocketune.device.head.fit import means_bytes
from pocketune.device.memory.budget import BudgetExceeded
from pocketune.device.memory.process import freed_at_once, process_memory, reclaim
from pocketune.device.memory.sizes import format_size
from pocketune.device.train.limit import head_seconds
from pocketune.device.train.photos import has_closed_form
from pocketune.device.train.progress import PhotosReport
from pocketune.device.use.model import Model
from pocketune.kit.names import EMBEDDINGS

if TYPE_CHECKING:
    from pocketune.arrays import State
    from pocketune.device.engine.base import EngineFactory
    from pocketune.device.train.folder import Run
    from pocketune.device.train.progress import Progress
    from pocketune.kit.kit import Kit
    from pocketune.tasks import Score, Task

KEPT, RANDOM = "kept", "random"

_PURPOSE = "classifier from the photos"


@dataclass(frozen=True)
class Start:
    """Where the classifier of a run comes from.

    Attributes:
        head: ``class means``, ``LDA`` or ``ridge`` of the photos; ``kept`` from the kit or run that
            the training began with; or ``random``.
        images: Training photos that it was computed from.
        estimate: Its leave-one-out score on these; for a kept one, its score. None if unknown.
    """

    head: str
    images: int = 0
    estimate: Score | None = None


def start_values(
    run: Run, kit: Kit, copy: Kit, make: EngineFactory, progress: Progress
) -> tuple[State, Start]:
    """The values that a run of ``copy`` starts from.

    They are those of ``kit``, which may be a run. The classifier is computed from the training
    photos. If they have the classes that the kit's classifier is for, that one is kept where it is
    better on them.

    Raises:
        BudgetExceeded: The run makes no steps, and its budget has no room to compute a classifier.
    """
    classes, manifest = run.identity.classes, copy.manifest
    kept = classes == Model.of(kit).classes
    start = Start(KEPT if kept else RANDOM)
    labels = run.photos.splits.train.labels
    if run.settings.head_start == "random" or not has_closed_form(manifest, labels):
        return _values(run, kit), start

    def show(done: int, seconds_left: float) -> None:
        progress.photos(PhotosReport(_PURPOSE, done, len(labels), seconds_left))

    size = manifest.embeddings or 0
    path = run.folder / EMBEDDINGS
    with embedded(
        lambda: make(copy, _values(run, kit)),
        run.photos.sample,
        path,
        size,
        show,
        head_seconds(run),
    ) as embeddings:
        reclaim()
        with freed_at_once():
            head = fit_head(embeddings.blocks, run.photos.task, room=head_room(run))
        values = _values(run, kit)
        if kept:
            score = _score(values, embeddings, run.photos.task)
            if head is None or head.score is None or not _is_better(head, score, run):
                return values, replace(start, images=len(embeddings), estimate=score)
    if head is None:
        if not run.steps:
            _refuse(run, size)
        return values, start
    weight, bias = manifest.task.head
    values.update({weight: head.weight, bias: head.bias})
    return values, Start(head.name, len(embeddings), head.score)


def _values(run: Run, kit: Kit) -> State:
    """The kit's values; the output layer is drawn at random if it is for other classes."""
    model, classes = Model.of(kit), run.identity.classes
    if classes == model.classes:
        return model.state
    rng = random_stream(run.settings.seed, Purpose.CLASSIFIER)
    return kit.manifest.task.new_head(model.state, len(classes), rng)


def head_room(run: Run) -> int | None:
    """Bytes that the budget leaves; None for no limit."""
    budget = run.settings.budget_bytes
    return None if budget is None else budget - process_memory().current


def _refuse(run: Run, size: int) -> None:
    """Refuse a run without steps whose budget has no room for a classifier of its photos."""
    room, budget = head_room(run), run.settings.budget_bytes
    if room is None or budget is None:
        return
    classes = len(run.identity.classes)
    needed = budget - room + means_bytes(size, classes)
    raise BudgetExceeded(
        f"the budget of {format_size(budget)} has no room to compute a classifier of {classes} "
        f"classes, which takes about {format_size(needed)}; give a larger budget, or a number of "
        "epochs to train one that is drawn at random"
    )


def _score(values: State, embeddings: Embeddings, task: Task) -> Score:
    """The score of the classifier in ``values``."""
    weight, bias = (values[name] for name in task.head)
    metric = task.metric()
    for rows, labels in embeddings.blocks():
        metric.update(rows @ weight.T + bias, labels)
    return metric.score


def _is_better(head: Head, kept: Score, run: Run) -> bool:
    return head.score is not None and run.photos.task.is_better(head.score, kept)
