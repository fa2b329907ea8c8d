"""Predict the classes or attributes of photos."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pocketune.arrays import StrPath
from pocketune.data import Loader, Skipped, open_images, unlabeled
from pocketune.device.engine.base import Engine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model, as_model
from pocketune.errors import check_positive
from pocketune.tasks import Prediction


def predict(
    model: Model | StrPath,
    paths: StrPath | Iterable[StrPath],
    *,
    top: int | None = None,
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

    Returns:
        An iterator over the predictions of the model's task, one for each image in the order of
        the paths. A file that cannot be read gives a ``Skipped`` after its batch.

    Raises:
        PocketuneError: The model or a path cannot be used, or ``top`` is below 1.
    """
    if top is not None:
        check_positive(top=top)
    model = as_model(model)
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    images = unlabeled(open_images(map(Path, paths)))
    manifest = model.kit.manifest
    loader = Loader(images, size=manifest.size, batch=manifest.batch, train=False)
    return _results(OnnxEngine(model.kit, model.state), loader, model, top)


def _results(
    engine: Engine, loader: Loader, model: Model, top: int | None
) -> Iterator[Prediction | Skipped]:
    reported: set[Skipped] = set()
    for batch in loader.epoch(0):
        for name, output in zip(batch.names, engine.predict(batch.images), strict=True):
            yield model.task.predict(name, output, top)
        yield from _new(loader, reported)
    yield from _new(loader, reported)


def _new(loader: Loader, reported: set[Skipped]) -> Iterator[Skipped]:
    for skipped in loader.skipped:
        if skipped not in reported:
            reported.add(skipped)
            yield skipped
