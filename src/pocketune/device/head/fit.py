"""Choose the output layer in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pocketune.arrays import FloatArray
from pocketune.device.head.basis import decomposition_bytes
from pocketune.device.head.gaussian import LDA, Means
from pocketune.device.head.ridge import Ridge
from pocketune.device.head.sums import BLOCK, Blocks, Exact, Sums, add_up, thinned
from pocketune.device.head.trial import Form, try_out
from pocketune.tasks import Score, Task

STRENGTHS: Exact = np.logspace(-3, 2, 6)
"""Penalties relative to the mean variance of a dimension. Finer steps gain nothing."""
LIBRARY = 12_000_000
"""Bytes that numpy's linear algebra takes once, for its code and buffers."""


@dataclass(frozen=True, eq=False)
class Head:
    """An output layer in closed form.

    Attributes:
        weight: (K, D), float32.
        bias: (K,), float32.
        name: The closed form: ``class means``, ``LDA`` or ``ridge``.
        strength: Its regularization; see the closed forms.
        score: Metric and loss of each photo by the layer that is fitted to all others; None if
            every class has a single photo.
    """

    weight: FloatArray
    bias: FloatArray
    name: str
    strength: float
    score: Score | None


def fit_head(blocks: Blocks, task: Task, *, room: int | None = None) -> Head | None:
    """Fit the closed forms that suit a task, and return the best by leave-one-out.

    Class means are of all photos. With too little memory, LDA and ridge are fitted to as many
    photos as fit, the same number of each class where it has them.

    Args:
        blocks: The embeddings of labeled photos.
        task: What is learned, with the classes of the labels.
        room: Bytes that the fit may take; None for no limit.

    Returns:
        None if the task has no closed form, or none for so little memory, or without photos.
    """
    if not any(task.targets(labels) is not None for _, labels in islice(blocks(), 1)):
        return None
    best: tuple[float, Head] | None = None
    for form, rows, sums in _forms(blocks, task, room):
        loss, head = _try(form, rows, sums)
        if best is None or loss < best[0]:
            best = loss, head
        del form  # before the next one is fitted
    return best[1] if best else None


def fit_bytes(images: int, size: int, outputs: int) -> int:
    """Bytes that :func:`fit_head` takes at its peak, for embeddings of ``size`` values.

    Beside a decomposition there are the means, the layer and what it is made of, with a row for
    each output, and the scores of a block of photos.
    """
    return decomposition_bytes(images, size) + means_bytes(size, outputs)


def means_bytes(size: int, outputs: int) -> int:
    """The same for class means alone."""
    return LIBRARY + 8 * outputs * (6 * size + 8 * BLOCK) + 8 * BLOCK * 6 * size


def _forms(blocks: Blocks, task: Task, room: int | None) -> Iterator[tuple[Form, Blocks, Sums]]:
    """The forms that suit, one after the other, each with the photos that it is fitted to."""
    sums = add_up(blocks, task)
    outputs = len(sums.targets)
    if room is not None and room < means_bytes(sums.size, outputs):
        return
    if sums.classes:
        yield Means(blocks, sums), blocks, sums
    if room is not None and room < fit_bytes(sums.images, sums.size, outputs):
        blocks = thinned(blocks, sums, _most(sums, room))
        sums = add_up(blocks, task)
    if sums.images < 2:
        return
    if sums.classes and sums.images > np.count_nonzero(sums.counts):
        yield LDA(blocks, sums, STRENGTHS), blocks, sums
    yield Ridge(blocks, sums, STRENGTHS), blocks, sums


def _most(sums: Sums, room: int) -> int:
    """The largest number of photos, below that of their values, that can be fitted."""
    most, outputs = min(sums.images, sums.size), len(sums.targets)
    while most > 0 and fit_bytes(most, sums.size, outputs) > room:
        most -= 1
    return most


def _try(form: Form, blocks: Blocks, sums: Sums) -> tuple[float, Head]:
    """The loss of a form at its best strength, and the layer of that strength."""
    verdict = try_out(form, blocks, sums)
    index, factor = (verdict.chosen, verdict.factor) if verdict else (0, 1.0)
    weight, bias = (factor * part for part in form.layer(index))
    return verdict.loss if verdict else np.inf, Head(
        weight.astype(np.float32),
        bias.astype(np.float32),
        form.name,
        float(form.strengths[index]),
        verdict.score if verdict else None,
    )
