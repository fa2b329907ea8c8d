"""What a finished run says of its classes, from the embeddings of its photos."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from pocketune.arrays import distinct
from pocketune.device.memory.estimate import ending_bytes
from pocketune.device.memory.process import process_memory, reclaim
from pocketune.device.train.checkpoint import TrainedNetwork
from pocketune.device.train.progress import PhotosReport
from pocketune.device.use.known import Known, described_photos
from pocketune.heap import freed_at_once
from pocketune.kit.names import BEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.data import Loader
    from pocketune.device.engine.base import Engine
    from pocketune.device.train.checkpoint import TrainState
    from pocketune.device.train.folder import Run
    from pocketune.device.train.progress import Progress
    from pocketune.kit.manifest import Manifest

_PURPOSE = "what the classes look like"


def describe_known(run: Run, state: TrainState, progress: Progress) -> None:
    """Write what photos of the run's classes look like, if it has classes and embeddings.

    The embeddings of at most 600 photos, or of two of each class, are in memory at once; nothing is
    written if these are too many, if the budget has no room for them, or the run no time. Otherwise
    the engine has the best values of the run afterwards.
    """
    manifest, sample = run.manifest, run.photos.sample
    groups = run.photos.task.strata(sample.dataset.labels)
    if manifest.embeddings is None or groups is None or run.photos.task.activation != "softmax":
        return
    limit = described_photos(len(run.identity.classes), manifest.embeddings)
    if not limit:
        return
    engine = state.engine
    engine.release()
    reclaim()  # before the check, and before the fit: neither shall set the peak of the process
    train, validation = sample.part(_even(groups, limit)), run.photos.validation
    held_out = validation and validation.part(_even(validation.dataset.groups, limit))
    first, others = len(train.dataset), len(held_out.dataset) if held_out else 0
    if not _fits(run, max(first, others)):
        return
    with freed_at_once():
        TrainedNetwork.load_into(engine, run.folder / BEST)
    began, photos = time.monotonic(), first + others

    def show(done: int) -> None:
        seconds_left = (time.monotonic() - began) / done * (photos - done)
        if time.monotonic() + seconds_left > run.deadline:
            raise _TooSlow
        progress.photos(PhotosReport(_PURPOSE, done, photos, seconds_left))

    with suppress(_TooSlow):
        embeddings, labels = _embedded(engine, train, manifest, show)
        if not len(embeddings):
            return
        compared = None
        if held_out is not None:
            compared, _ = _embedded(engine, held_out, manifest, lambda done: show(first + done))
        engine.release()
        reclaim()
        with freed_at_once():
            known = Known.fit(embeddings, labels, compared)
        known.save(run.folder, run.identity.kit, state.counters.best_step)


def _fits(run: Run, photos: int) -> bool:
    """Whether the budget has room for describing the classes by so many photos."""
    budget = run.settings.budget_bytes
    if budget is None:
        return True
    classes, decoding = len(run.identity.classes), run.photos.splits.decoding
    needed = ending_bytes(run.manifest, classes=classes, photos=photos, decoding=decoding)
    return process_memory().current + needed <= budget


class _TooSlow(Exception):  # noqa: N818 - it is not an error
    """The limit of time leaves too little for the photos."""


def _even(groups: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Indices of at most so many photos, of all groups in turn."""
    place = np.empty(len(groups), np.int64)
    for group in distinct(groups):
        own = np.flatnonzero(groups == group)
        place[own] = np.arange(len(own))
    return np.sort(np.argsort(place, kind="stable")[:limit])


def _embedded(
    engine: Engine, photos: Loader, manifest: Manifest, show: Callable[[int], None]
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Embeddings (N, D) and classes (N,) of photos; those that cannot be read are left out."""
    embeddings = [np.empty((0, manifest.embeddings or 0), np.float32)]
    labels = [photos.dataset.labels[:0]]
    for batch in photos.epoch(0):
        embeddings.append(engine.embed(batch.images))
        labels.append(batch.labels)
        show(sum(map(len, labels)))
    return np.concatenate(embeddings), np.concatenate(labels)
