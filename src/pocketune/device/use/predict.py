"""What is on these photos?"""

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
    """Predict what is on images, a batch at a time.

    Example:
        >>> for result in predict("runs/flowers", ["photos/"]):  # doctest: +SKIP
        ...     print(result)
        ClassPrediction(name='photos/1.jpg', guesses=(Guess(label='rose', probability=0.98),))
        Skipped(name='photos/notes.txt', reason='not an image in a known format')

    Args:
        model: The folder of a run, or a kit.
        paths: Image files, and folders and .zips of them; or one of these.
        top: How many classes or attributes to name for each image, at most all of them; by
            default as many as the model's task names: 5 classes, or all attributes.

    Returns:
        A prediction of the model's task for each image, in the order of the paths, computed while
        it is iterated over; what cannot be read comes as a ``Skipped`` after its batch.

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
    told: set[Skipped] = set()
    for batch in loader.epoch(0):
        for name, output in zip(batch.names, engine.predict(batch.images), strict=True):
            yield model.task.predict(name, output, top)
        yield from _new(loader, told)
    yield from _new(loader, told)


def _new(loader: Loader, told: set[Skipped]) -> Iterator[Skipped]:
    for skipped in loader.skipped:
        if skipped not in told:
            told.add(skipped)
            yield skipped
