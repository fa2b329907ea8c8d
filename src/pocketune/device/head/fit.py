"""Choose the output layer in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.device.head.basis import decomposition_bytes
from pocketune.device.head.gaussian import LDA, Means
from pocketune.device.head.projection import RANK, Projection, projection_bytes
from pocketune.device.head.ridge import Ridge
from pocketune.device.head.sums import BLOCK, Blocks, Exact, Sums, add_up
from pocketune.device.head.trial import Form, try_out
from pocketune.tasks import Score, Task

STRENGTHS: Exact = np.logspace(-3, 2, 6)
"""Penalties relative to the mean variance of a dimension. Finer steps gain nothing."""
LIBRARY = 7_000_000
"""Bytes that numpy's linear algebra takes once, for its code and buffers."""

VECTORS = 20
"""Vectors of a value for each output: counts, weights, lengths, biases, their copies."""


@dataclass(frozen=True, eq=False)
class Head:
    """An output layer in closed form.

    Attributes:
        weight: (K, D), float32.
        bias: (K,), float32.
        name: The closed form: `class means`, `LDA` or `ridge`.
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

    Class means are of whole embeddings. LDA and ridge are fitted in the directions in which the
    embeddings differ most, so that their memory does not grow with the photos.

    Args:
        blocks: The embeddings of labeled photos.
        task: What is learned, with the classes of the labels.
        room: Bytes that the fit may take, or None for no limit; with few, only class means compete.

    Returns:
        None if the task has no closed form, or none for so little memory, or without photos.
    """
    if not any(task.targets(labels) is not None for _, labels in islice(blocks(), 1)):
        return None
    best: tuple[float, Head] | None = None
    for form, rows, sums, projection in _forms(blocks, task, room):
        loss, head = _try(form, rows, sums, projection)
        if best is None or loss < best[0]:
            best = loss, head
        del form  # before the next one is fitted
    return best[1] if best else None


class LeftOut(NamedTuple):
    """What is predicted for photos by the layer that is fitted to all others.

    Attributes:
        tested: Whether (N,) each photo was left out; see `Sums.testable`.
        outputs: The outputs (M, K) for those that were.
    """

    tested: NDArray[np.bool_]
    outputs: FloatArray


def left_out(blocks: Blocks, task: Task) -> LeftOut | None:
    """What the layer that `fit_head` would fit to all others says of each photo.

    Its form, strength and temperature are those of the layer that is fitted to all photos. None if
    there is no such layer, or every class has a single photo.
    """
    best: tuple[float, LeftOut] | None = None
    for form, rows, sums, _ in _forms(blocks, task, None):
        verdict = try_out(form, rows, sums)
        if verdict is None or (best is not None and verdict.loss >= best[0]):
            continue
        tested, parts = list[NDArray[np.bool_]](), list[Exact]()
        for part, labels in rows():
            tested.append(sums.testable(labels))
            chosen = next(islice(form.left_out(part, labels), verdict.chosen, None))
            parts.append(chosen[tested[-1]])
        outputs = (verdict.factor * np.concatenate(parts)).astype(np.float32)
        best = verdict.loss, LeftOut(np.concatenate(tested), outputs)
    return best[1] if best else None


def fit_bytes(images: int, size: int, outputs: int) -> int:
    """Bytes that `fit_head` takes at its peak, for embeddings of `size` values.

    They are those of class means, or with their layer those of the projection, or of LDA in what is
    projected: its means, also along the axes, and the layer before and after it is shrunk.
    """
    rank, axes = min(size, RANK), projection_bytes(images, size)
    if axes:
        rank = min(rank, images)
    projecting = fitting = LIBRARY + axes + 8 * outputs * size / 2
    if axes:
        projecting += axes + 8 * outputs * (size + rank + 8 * BLOCK) + 8 * BLOCK * 4 * size
    layer = rank + max(rank, (rank + size) / 2 if axes else 0)
    fitting += decomposition_bytes(rank) + 8 * BLOCK * 6 * rank
    fitting += 8 * outputs * (3 * rank + max(layer, 8 * BLOCK) + VECTORS)
    return round(max(means_bytes(size, outputs), projecting, fitting))


def means_bytes(size: int, outputs: int) -> int:
    """Bytes that `fit_head` takes at its peak where class means alone compete.

    There are the means, with a row for each output, and the embeddings of a block of photos; then
    their scores, or the layer, which is made in float64.
    """
    layer = round(1.5 * size)
    rows = size + max(layer, 8 * BLOCK) + VECTORS
    return LIBRARY + 8 * outputs * rows + 8 * BLOCK * 6 * size


def _forms(
    blocks: Blocks, task: Task, room: int | None
) -> Iterator[tuple[Form, Blocks, Sums, Projection | None]]:
    """The forms that suit, one after the other, each with what it is fitted to."""
    sums = add_up(blocks, task)
    outputs, projection = len(sums.targets), None
    if room is not None and room < means_bytes(sums.size, outputs):
        return
    if sums.by_class:
        yield Means(blocks, sums), blocks, sums, None
    if sums.images < 2 or (room is not None and room < fit_bytes(sums.images, sums.size, outputs)):
        return
    if sums.size > RANK:
        projection = Projection.of(blocks, sums)
        blocks = projection.apply(blocks)
        sums = add_up(blocks, task)
    if sums.by_class and sums.images > np.count_nonzero(sums.counts):
        yield LDA(blocks, sums, STRENGTHS), blocks, sums, projection
    yield Ridge(blocks, sums, STRENGTHS), blocks, sums, projection


def _try(
    form: Form, blocks: Blocks, sums: Sums, projection: Projection | None
) -> tuple[float, Head]:
    """The loss of a form at its best strength, and the layer of that strength."""
    verdict = try_out(form, blocks, sums)
    index, factor, loss, score = 0, 1.0, np.inf, None
    if verdict is not None:
        index, factor, loss, score = verdict
    weight, bias = form.layer(index)
    weight *= factor
    bias *= factor
    layer = (weight, bias) if projection is None else projection.layer(weight, bias)
    head = Head(
        layer[0].astype(np.float32, copy=False),
        layer[1].astype(np.float32),
        form.name,
        float(form.strengths[index]),
        score,
    )
    return loss, head
