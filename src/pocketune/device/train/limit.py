"""A run within a limit of time: the photos that validate, and the number of steps."""

from __future__ import annotations

import math
import time
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from pocketune.data import Purpose, random_stream
from pocketune.device.cache.choice import Parts
from pocketune.device.cache.code import Features
from pocketune.device.train.temper import BATCHES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pocketune.data import Batch, Loader
    from pocketune.device.engine.base import Engine, Preparing
    from pocketune.device.train.folder import Run

HEAD_SECONDS = 300.0
"""Time for the classifier's photos. On a slow machine with many photos, a part of them gives a
classifier that is nearly as good."""
HEAD_SHARE = 0.5
"""Share of a run's time in which photos may give the classifier, which is worth more than steps."""
LEAST_HEAD_SECONDS = 5.0
"""Time for them at least, also where the limit is over: without them the result is useless."""
VALIDATION_SHARE = 0.05
"""Share of the time that is left after that, in which one validation has to fit."""
REFIT_SHARE = 0.25
"""Largest share of the time that is left for computing the classifier again after the last step."""
SLOWER = 1.3
"""How much longer this may take than expected."""
SAFETY = 0.9
"""Share of the time that steps are planned for; a busy machine may take the rest."""
TIMED = 4
"""Batches that are timed; the first opens the graphs."""


class Pace(NamedTuple):
    """How fast a run is, in seconds.

    Attributes:
        photo: A photo of a validation.
        step: A step, or the wait for its photos if that is longer.
        opening: Opening the graphs of a step and of a validation.
        later: A step on features that were kept; None if none are.
    """

    photo: float
    step: float
    opening: float
    later: float | None = None


def head_seconds(run: Run) -> float:
    """Seconds in which photos may give the classifier."""
    share = HEAD_SHARE * (run.deadline - time.monotonic())
    return min(HEAD_SECONDS, max(LEAST_HEAD_SECONDS, share))


def within(run: Run, engine: Engine, *, refits: bool = False) -> Run:
    """The run with as many steps as it has time for, so that its learning rate decays to zero.

    A few steps are timed whose gradients are not used. If a validation would take too long, fewer
    photos validate. A limit shortens a run with its warm-up and never makes it longer; with no time
    for a step, the classifier is the result. If the run `refits`, time is kept for computing the
    classifier again after the last step, unless that would take too long.
    """
    if math.isinf(run.deadline) or not run.steps:
        return run
    pace = _measure(run, engine)
    left = max(0.0, run.deadline - time.monotonic())
    most = math.ceil(VALIDATION_SHARE * left / pace.photo)
    run = replace(run, photos=run.photos.validated_on(most))
    validation = pace.opening + pace.photo * len(run.photos.splits.val)
    again = pace.opening + SLOWER * pace.photo * len(run.photos.splits.train)
    if not refits or again + validation > REFIT_SHARE * left:
        again = 0.0
    kept = validation
    if pace.later is not None and not run.photos.task.dense:  # features of its photos are kept, too
        later = pace.later / run.photos.training.batch  # a step takes longer than a prediction
        kept = pace.opening + min(pace.photo, later) * len(run.photos.splits.val)
    reserved = validation + (again + validation if again else 0.0)
    run = replace(run, deadline=run.deadline - reserved, refit_seconds=again)
    first_trials = 2 * BATCHES * pace.step if engine.statistics else 0.0
    steps = fitting_steps(
        left - (reserved - validation) - first_trials,
        pace.step,
        validation,
        run.steps_per_epoch,
        later=pace.later,
        kept=kept,
        first=(run.settings.draws or 0) * run.steps_per_epoch,
    )
    if steps >= run.steps:
        return run
    warmup = run.settings.warmup * steps // run.steps
    shorter = replace(run.settings, steps=max(1, steps), epochs=None, warmup=warmup)
    deadline = run.deadline if steps else -math.inf
    return replace(run, settings=shorter, deadline=deadline, shortened=True)


def fitting_steps(
    seconds: float,
    step: float,
    validation: float,
    per_epoch: int,
    *,
    later: float | None = None,
    kept: float | None = None,
    first: int = 0,
) -> int:
    """Steps that fit with their validations: one before them, one an epoch and one after them.

    Args:
        seconds: Time for them.
        step: Seconds of a step.
        validation: Seconds of a validation.
        per_epoch: Steps in an epoch.
        later: Seconds of each step after the `first` ones, if these keep features.
        kept: Seconds of each validation in between, if the first one keeps its features.
        first: Steps that compute features.
    """
    left = SAFETY * seconds - 2 * validation
    share = (validation if kept is None else kept) / per_epoch
    spent = first * (step + share)
    if later is None or left <= spent:
        return max(0, int(left / (step + share)))
    return first + int((left - spent) / (later + share))


def _measure(run: Run, engine: Engine) -> Pace:
    """Time a few batches of a validation and of training; nothing is updated."""
    statistics = {name: values.copy() for name, values in engine.statistics.items()}
    rng = random_stream(run.settings.seed, Purpose.DROPOUT, 0)
    opened, seen = _times(run.photos.sample, lambda batch: engine.predict(batch.images))
    started, made = _times(
        run.photos.training, lambda batch: engine.gradients(batch.images, batch.labels, rng)
    )
    later = None
    if run.settings.cache in ("disk", "memory"):
        later = _later(run, cast("Preparing", engine), rng)
    for name, values in statistics.items():
        np.copyto(engine.statistics[name], values)
    opening = max(0.0, opened - seen) + max(0.0, started - made)
    return Pace(seen / run.photos.sample.batch, made, opening, later)


def _later(run: Run, engine: Preparing, rng: np.random.Generator) -> float:
    """Seconds of a step on kept features."""
    code = Parts.of(run.photos, run.manifest, 1).training.code
    with closing(run.photos.training.epoch(0)) as batches:
        batch = next(batches)
    kept = [code.features(engine.prepare(image[np.newaxis])).rows for image in batch.images]
    features = cast("NDArray[np.uint8]", Features(code, np.concatenate(kept)))
    began = time.monotonic()
    for _ in range(TIMED):
        engine.gradients(features, batch.labels, rng)
    return (time.monotonic() - began) / TIMED


def _times(photos: Loader, compute: Callable[[Batch], object]) -> tuple[float, float]:
    """Seconds of the first batch, and the mean of a few others with the wait for their photos."""
    ends = [time.monotonic()]
    with closing(photos.epoch(0)) as batches:
        for batch in islice(batches, TIMED):
            compute(batch)
            ends.append(time.monotonic())
    if len(ends) == 1:
        raise photos.undecodable()
    first, *others = np.diff(ends).tolist()
    return first, sum(others) / len(others) if others else first
