"""What a run's model predicts for the run's photos."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.data import Loader
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.head import left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pocketune.arrays import FloatArray
    from pocketune.data import Batch, ImageDataset, Skipped
    from pocketune.device.use.model import Model
    from pocketune.tasks import Evaluation, Labels, Task
    from pocketune.tasks.results import Values, Verdict


@dataclass(frozen=True, eq=False)
class Predicted:
    """Photos, and what the model's outputs for them say. The outputs themselves may be large.

    Attributes:
        photos: The photos that could be decoded.
        result: The evaluation of all.
        losses: The loss (N,) of each.
        marks: What each contributes to the metric (N, ...); see `Task.marks`.
        confidences: The probability of each decision; None for a task without any.
        verdicts: What label and output of each say, in words.
        embeddings: The inputs (N, D) of the output layer, or the outputs of a network without
            them; None if they were not asked for.
        skipped: Files that could not be decoded.
    """

    photos: ImageDataset
    result: Evaluation
    losses: Values
    marks: NDArray[Any]
    confidences: Values | None
    verdicts: tuple[Verdict, ...]
    embeddings: FloatArray | None
    skipped: tuple[Skipped, ...]

    @property
    def labels(self) -> Labels:
        """The labels (N, ...)."""
        return self.photos.labels


class Collector:
    """Collects what a report says of photos, from batches of outputs.

    Args:
        task: What is predicted.
        photos: The photos.
    """

    def __init__(self, task: Task, photos: ImageDataset) -> None:
        self._task, self._photos = task, photos
        self._positions: list[int] = []
        self._left = iter(enumerate(photos.names))
        self._verdicts: list[Verdict] = []
        self._losses: list[Values] = []
        self._marks: list[NDArray[Any]] = []
        self._confidences: list[Values] = []

    def add(self, batch: Batch, outputs: FloatArray) -> None:
        """Add a batch; batches are in the order of the photos."""
        self._losses.append(self._task.losses(outputs, batch.labels))
        self._marks.append(self._task.marks(outputs, batch.labels))
        sure = self._task.confidences(outputs)
        if sure is not None:
            self._confidences.append(sure)
        seen = batch.seen or (None,) * len(batch.names)
        for name, output, part in zip(batch.names, outputs, seen, strict=True):
            position = next(place for place, other in self._left if other == name)
            self._positions.append(position)
            label = self._photos.labels[position]
            self._verdicts.append(self._task.verdict(output, label, part))

    def predicted(
        self,
        result: Evaluation,
        embeddings: FloatArray | None = None,
        skipped: tuple[Skipped, ...] = (),
    ) -> Predicted | None:
        """All that was collected; None without a photo."""
        if not self._positions:
            return None
        return Predicted(
            self._photos.subset(self._positions),
            result,
            np.concatenate(self._losses),
            np.concatenate(self._marks),
            np.concatenate(self._confidences) if self._confidences else None,
            tuple(self._verdicts),
            embeddings,
            skipped,
        )


def predict_all(
    model: Model,
    photos: ImageDataset,
    *,
    embed: bool = False,
    after_batch: Callable[[int], None] = lambda _: None,
) -> Predicted | None:
    """Run the model on labeled photos, seen as in an evaluation.

    Args:
        model: The model of a run.
        photos: Labeled photos.
        embed: Whether embeddings are needed too.
        after_batch: Called with the number of photos after each batch.

    Returns:
        None if no photo can be decoded.
    """
    manifest, task = model.kit.manifest, model.task
    engine = OnnxEngine(model.kit, model.state)
    loader = Loader(photos, size=manifest.size, batch=manifest.batch, train=False)
    found = Collector(task, photos)
    embeddings: list[FloatArray] = []

    def batches() -> Iterator[tuple[FloatArray, Labels]]:
        for batch in loader.epoch(0):
            outputs = engine.predict(batch.images)
            found.add(batch, outputs)
            if embed:
                embeddings.append(_embedded(engine, model, batch, outputs))
            yield outputs, batch.labels
            after_batch(len(batch.names))

    result = task.evaluate(batches())
    return found.predicted(
        result, np.concatenate(embeddings) if embeddings else None, loader.skipped
    )


def predict_by_others(task: Task, known: Predicted) -> Predicted | None:
    """What the classifier that is computed from all other photos says of each.

    The only photo of a class is not among them, as the others do not show its class.

    Args:
        task: What is predicted.
        known: The photos, with embeddings.

    Returns:
        None if no classifier can be computed from the embeddings.
    """
    assert known.embeddings is not None
    embeddings, labels = known.embeddings, known.labels
    found = left_out(lambda: iter([(embeddings, labels)]), task)
    if found is None:
        return None
    outputs, labels = found.outputs, labels[found.tested]
    return replace(
        known,
        photos=known.photos.subset(np.flatnonzero(found.tested)),
        embeddings=embeddings[found.tested],
        result=task.evaluate(iter([(outputs, labels)])),
        losses=task.losses(outputs, labels),
        marks=task.marks(outputs, labels),
        confidences=task.confidences(outputs),
        verdicts=tuple(map(task.verdict, outputs, labels)),
    )


def _embedded(engine: OnnxEngine, model: Model, batch: Batch, outputs: FloatArray) -> FloatArray:
    if model.kit.manifest.embeddings is None:
        return outputs.reshape(len(outputs), -1)
    return engine.embed(batch.images)
