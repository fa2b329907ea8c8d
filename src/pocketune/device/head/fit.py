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
from pocketune.device.head.sums import Blocks, Exact, Sums, add_up
from pocketune.device.head.trial import Form, try_out
from pocketune.tasks import Score, Task

STRENGTHS: Exact = np.logspace(-3, 2, 6)
"""Penalties relative to the mean variance of a dimension. Finer steps gain nothing."""


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

    Args:
        blocks: The embeddings of labeled photos.
        task: What is learned, with the classes of the labels.
        room: Bytes that the fit may take; with too few, only class means are tried.

    Returns:
        None if the task has no closed form, or none for so little memory, or without photos.
    """
    if not any(task.targets(labels) is not None for _, labels in islice(blocks(), 1)):
        return None
    best: tuple[float, Head] | None = None
    sums = add_up(blocks, task)
    for form in _forms(blocks, sums, room):
        loss, head = _try(form, blocks, sums)
        if best is None or loss < best[0]:
            best = loss, head
        del form  # before the next one is fitted
    return best[1] if best else None


def fit_bytes(images: int, size: int, outputs: int) -> int:
    """Bytes that :func:`fit_head` takes at its peak, for embeddings of ``size`` values.

    Beside a decomposition there are the means, the layer and what it is made of, with a row for
    each output, and the scores of a block of photos.
    """
    return decomposition_bytes(images, size) + 8 * outputs * (6 * size + 4 * outputs)


def _forms(blocks: Blocks, sums: Sums, room: int | None) -> Iterator[Form]:
    exclusive = sums.classes
    if exclusive:
        yield Means(blocks, sums)
    if room is not None and room < fit_bytes(sums.images, sums.size, len(sums.targets)):
        return
    if exclusive and sums.images > np.count_nonzero(sums.counts):
        yield LDA(blocks, sums, STRENGTHS)
    yield Ridge(blocks, sums, STRENGTHS)


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
