"""What a run's model predicts for the run's photos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Loader
from pocketune.device.engine.onnx import OnnxEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pocketune.arrays import FloatArray
    from pocketune.data import Batch, ImageDataset, Skipped
    from pocketune.device.use.model import Model
    from pocketune.tasks import Labels
    from pocketune.tasks.results import Values


@dataclass(frozen=True, eq=False)
class Predicted:
    """Photos with the model's outputs.

    Attributes:
        photos: The photos that could be decoded.
        outputs: The network's outputs (N, ...).
        losses: The loss (N,) of each.
        embeddings: The inputs (N, D) of the output layer, or the outputs of a network without
            them; None if they were not asked for.
        skipped: Files that could not be decoded.
    """

    photos: ImageDataset
    outputs: FloatArray
    losses: Values
    embeddings: FloatArray | None
    skipped: tuple[Skipped, ...]

    @property
    def labels(self) -> Labels:
        """The labels (N, ...)."""
        return self.photos.labels


def predict_all(
    model: Model,
    photos: ImageDataset,
    *,
    embed: bool = False,
    after_batch: Callable[[int], None] = lambda _: None,
) -> Predicted | None:
    """Run the model on labeled photos, cropped as for an evaluation.

    Args:
        model: The model of a run.
        photos: Labeled photos.
        embed: Whether embeddings are needed too.
        after_batch: Called with the number of photos after each batch.

    Returns:
        None if no photo can be decoded.
    """
    manifest = model.kit.manifest
    engine = OnnxEngine(model.kit, model.state)
    loader = Loader(photos, size=manifest.size, batch=manifest.batch, train=False)
    names: list[str] = []
    outputs: list[FloatArray] = []
    losses: list[Values] = []
    embeddings: list[FloatArray] = []
    for batch in loader.epoch(0):
        names += batch.names
        outputs.append(engine.predict(batch.images))
        losses.append(model.task.losses(outputs[-1], batch.labels))
        if embed:
            embeddings.append(_embedded(engine, model, batch, outputs[-1]))
        after_batch(len(batch.names))
    if not names:
        return None
    return Predicted(
        photos.subset(_positions(photos.names, names)),
        np.concatenate(outputs),
        np.concatenate(losses),
        np.concatenate(embeddings) if embed else None,
        loader.skipped,
    )


def _embedded(engine: OnnxEngine, model: Model, batch: Batch, outputs: FloatArray) -> FloatArray:
    if model.kit.manifest.embeddings is None:
        return outputs.reshape(len(outputs), -1)
    return engine.embed(batch.images)


def _positions(names: Sequence[str], read: Sequence[str]) -> list[int]:
    """Where the photos that were read are among all; both are in the same order."""
    left = iter(enumerate(names))
    return [next(position for position, other in left if other == name) for name in read]


def spread(photos: ImageDataset, limit: int) -> ImageDataset:
    """At most ``limit`` of the photos, evenly spread over them."""
    if len(photos) <= limit:
        return photos
    return photos.subset(np.linspace(0, len(photos) - 1, limit).round().astype(np.int64))
