"""Predict the classes or attributes of photos."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketune.arrays import FloatArray, StrPath
from pocketune.data import Loader, Skipped, open_images, unlabeled
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.delta import Delta, as_delta
from pocketune.device.use.model import Model, as_model
from pocketune.errors import check_positive
from pocketune.tasks import Prediction


@dataclass(frozen=True)
class DeltaPrediction(Prediction):
    """A prediction by one of several deltas.

    Attributes:
        name: The image's file.
        delta: The delta's file.
        prediction: The prediction.
    """

    name: str
    delta: str
    prediction: Prediction

    def to_dict(self) -> dict[str, Any]:
        """See :class:`Prediction`."""
        return {"image": self.name, "delta": self.delta, **self.prediction.to_dict()}

    def __str__(self) -> str:
        return f"{self.delta}: {self.prediction}"


def predict(
    model: Model | StrPath,
    paths: StrPath | Iterable[StrPath],
    *,
    top: int | None = None,
    deltas: Iterable[Delta | StrPath] = (),
) -> Iterator[Prediction | Skipped]:
    """Predict images, a batch at a time.

    Example:
        >>> for result in predict("runs/flowers", ["photos/"]):  # doctest: +SKIP
        ...     print(result)
        ClassPrediction(name='photos/1.jpg', guesses=(Guess(label='rose', probability=0.98),))
        Skipped(name='photos/notes.txt', reason='not an image in a known format')

    Args:
        model: A run folder or a kit.
        paths: Image files, and folders and .zips of images; or one of these.
        top: Number of classes or attributes to name for each image; by default the 5 most likely
            classes, or all attributes.
        deltas: Deltas of the model's kit, or their files. Each image is predicted by each of them,
            in place of the model's own values. The frozen part runs once for each image, and no
            graph is opened again.

    Returns:
        An iterator over the predictions of the model's task, one for each image in the order of
        the paths; with deltas, a ``DeltaPrediction`` for each image and delta. A file that cannot
        be read gives a ``Skipped`` after its batch.

    Raises:
        PocketuneError: The model or a path cannot be used, ``top`` is below 1, or a delta belongs
            to another kit.
    """
    if top is not None:
        check_positive(top=top)
    model = as_model(model)
    swapped = [(each.name, each.model(model.kit)) for each in map(as_delta, deltas)]
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    images = unlabeled(open_images(map(Path, paths)))
    manifest = model.kit.manifest
    loader = Loader(images, size=manifest.size, batch=manifest.batch, train=False)
    return _results(swapped or [("", model)], loader, top)


def _results(
    models: list[tuple[str, Model]], loader: Loader, top: int | None
) -> Iterator[Prediction | Skipped]:
    """The predictions of models of one kit, each with the name of its delta, if it has one."""
    reported: set[Skipped] = set()
    engine = OnnxEngine(models[0][1].kit, models[0][1].state)
    for batch in loader.epoch(0):
        prepared = engine.prepare(batch.images)
        by_model = []
        for delta, model in models:
            if delta:
                engine.swap(model.state)
            by_model.append(_predictions(delta, model, batch.names, engine.complete(prepared), top))
        for predictions in zip(*by_model, strict=True):
            yield from predictions
        yield from _new(loader, reported)
    yield from _new(loader, reported)


def _predictions(
    delta: str, model: Model, names: Sequence[str], outputs: FloatArray, top: int | None
) -> list[Prediction]:
    task = model.task
    found = [task.predict(name, row, top) for name, row in zip(names, outputs, strict=True)]
    return [DeltaPrediction(each.name, delta, each) for each in found] if delta else found


def _new(loader: Loader, reported: set[Skipped]) -> Iterator[Skipped]:
    for skipped in loader.skipped:
        if skipped not in reported:
            reported.add(skipped)
            yield skipped
