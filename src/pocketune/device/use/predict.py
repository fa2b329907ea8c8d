"""What is on these photos?"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketune.arrays import StrPath
from pocketune.data import Loader, Skipped, open_images, unlabeled
from pocketune.device.engine.base import Engine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.use.model import Model, as_model
from pocketune.errors import check_positive
from pocketune.tasks.losses import LOSSES

TOP = 5


@dataclass(frozen=True)
class Guess:
    """A class, or an attribute, and its probability, between 0 and 1."""

    label: str
    probability: float

    @property
    def likely(self) -> bool:
        """Whether the probability is above a half: then an image is taken to have an attribute."""
        return self.probability > 0.5


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of one image, the likeliest first."""

    name: str
    guesses: tuple[Guess, ...]

    @property
    def worth_naming(self) -> tuple[Guess, ...]:
        """The guesses to show where nobody has said how many."""
        return self.guesses

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        classes = [{"class": g.label, "probability": g.probability} for g in self.guesses]
        return {"image": self.name, "classes": classes}


@dataclass(frozen=True)
class AttributePrediction(Prediction):
    """The attributes of one image, the likeliest first."""

    @property
    def worth_naming(self) -> tuple[Guess, ...]:
        """Those that the image is taken to have."""
        return tuple(guess for guess in self.guesses if guess.likely)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        attributes = [
            {"attribute": g.label, "probability": g.probability, "present": g.likely}
            for g in self.guesses
        ]
        return {"image": self.name, "attributes": attributes}


def predict(
    model: Model | StrPath,
    paths: StrPath | Iterable[StrPath],
    *,
    top: int | None = None,
) -> Iterator[Prediction | Skipped]:
    """Classify images, or tell their attributes, a batch at a time.

    Example:
        >>> for result in predict("runs/flowers", ["photos/"]):  # doctest: +SKIP
        ...     print(result)
        Prediction(name='photos/1.jpg', guesses=(Guess(label='rose', probability=0.98),))
        Skipped(name='photos/notes.txt', reason='not an image in a known format')

    Args:
        model: The folder of a run, or a kit.
        paths: Image files, and folders and .zips of them; or one of these.
        top: How many classes or attributes to name for each image, at most all of them; 5
            classes, and all attributes, where not given.

    Returns:
        A result for each image, in the order of the paths, computed while it is iterated over,
        an ``AttributePrediction`` where the model tells attributes; what cannot be read comes as a
        ``Skipped`` after its batch.

    Raises:
        PocketuneError: The model or a path cannot be used, or ``top`` is below 1.
    """
    if top is not None:
        check_positive(top=top)
    model = as_model(model)
    if top is None:
        top = len(model.classes) if model.kit.manifest.has_attributes else TOP
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    images = unlabeled(open_images(map(Path, paths)))
    manifest = model.kit.manifest
    loader = Loader(images, size=manifest.size, batch=manifest.batch, train=False)
    return _results(OnnxEngine(model.kit, model.state), loader, model, top)


def _results(
    engine: Engine, loader: Loader, model: Model, top: int
) -> Iterator[Prediction | Skipped]:
    told: set[Skipped] = set()
    manifest = model.kit.manifest
    probabilities = LOSSES[manifest.loss].probabilities
    made = AttributePrediction if manifest.has_attributes else Prediction
    for batch in loader.epoch(0):
        for name, row in zip(batch.names, probabilities(engine.predict(batch.images)), strict=True):
            best = np.argsort(-row, kind="stable")[:top]
            yield made(name, tuple(Guess(model.classes[i], float(row[i])) for i in best))
        yield from _new(loader, told)
    yield from _new(loader, told)


def _new(loader: Loader, told: set[Skipped]) -> Iterator[Skipped]:
    for skipped in loader.skipped:
        if skipped not in told:
            told.add(skipped)
            yield skipped
