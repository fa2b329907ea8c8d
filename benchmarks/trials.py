"""Short training runs on photos that are decoded once, to compare many settings.

A trial makes the steps that `pocketune train` would make with the same settings, from a classifier
that is computed from the data: same order, same crops, same optimizer and schedule. It differs in
what it leaves out: it keeps decoded batches and the outputs of the frozen part, has no checkpoints,
and does not validate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pocketune.arrays import FloatArray, State
from pocketune.data import (
    ImageDataset,
    Loader,
    Purpose,
    imbalance,
    load_splits,
    random_stream,
)
from pocketune.device import Model
from pocketune.device.cache.code import EXACT, Code, Features
from pocketune.device.engine.base import Gradients
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.head import fit_head
from pocketune.device.train import TrainSettings
from pocketune.device.train.adjustment import Adjustment
from pocketune.device.train.defaults import DRAWS
from pocketune.device.train.optimizer import create_optimizer
from pocketune.device.train.schedule import CosineSchedule
from pocketune.kit.kit import Kit

SIZE, BATCH = 128, 8
KEPT = 10_000
"""Crops that are kept of a set of photos; later epochs repeat those of earlier ones."""


class Views:
    """The photos of a set as the network sees them: batches to train on, and test photos.

    Args:
        photos: Folder with `train` and `test`.
        per_class: Photos of each class to take, one number or one for each, a fifth of them for
            validation; None for all.

    Attributes:
        chosen: The photos, those for validation included.
        train: The photos to make steps with.
        draws: Crops of each photo, which epochs repeat; None for as many as are kept.
    """

    draws: int | None = None

    def __init__(self, photos: Path, per_class: int | Sequence[int] | None) -> None:
        everything = load_splits(photos / "train", val_fraction=0.0).train
        chosen = everything.subset(_first(everything.labels, per_class))
        # A trial does not validate, but a run without settings sets a fifth aside.
        self.chosen = chosen
        self.train = chosen.subset(_without_a_fifth(chosen.labels))
        self.center = _all(self.train)
        self.test = _all(load_splits(photos / "test", val_fraction=0.0).train)
        self._kept = max(DRAWS, KEPT // len(self.train))
        self._epochs: dict[tuple[int, int], list[tuple[Any, Any]]] = {}

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return len(self.train) // BATCH

    def epoch(self, seed: int, number: int) -> list[tuple[Any, Any]]:
        """Batches of pixels and labels."""
        key = seed, number % min(self._kept, self.draws or self._kept)
        if key not in self._epochs:
            loader = Loader(self.train, size=SIZE, batch=BATCH, train=True, seed=seed)
            self._epochs[key] = [(batch.images, batch.labels) for batch in loader.epoch(key[1])]
        return self._epochs[key]


class Remembering(OnnxEngine):
    """An engine that computes the frozen part once for each image, and trains on few bits of it."""

    memory: dict[tuple[str, int], FloatArray]
    bits = EXACT

    def gradients(self, images: Any, labels: Any, rng: np.random.Generator) -> Gradients:
        """See `OnnxEngine`; the features are rounded as those that a run keeps."""
        if self.bits == EXACT:
            return super().gradients(images, labels, rng)
        features = self._start_values(images)
        kept: Any = Code(features.shape[1:], self.bits).features(features)
        return super().gradients(kept, labels, rng)

    def _start_values(self, images: Any) -> Any:
        features = self._kit.manifest.features
        if features is None or np.prod(features) > KEPT or isinstance(images, Features):
            return super()._start_values(images)
        keys = [(str(self._kit.path), hash(image.tobytes())) for image in images]
        new = [place for place, key in enumerate(keys) if key not in self.memory]
        for place, value in zip(new, super()._start_values(images[new]), strict=True):
            self.memory[keys[place]] = value.copy()
        return np.stack([self.memory[key] for key in keys])


class Trials:
    """Trials of one kit on one set of photos, with features in 32 bits or fewer."""

    def __init__(self, kit: Path, views: Views, bits: int = EXACT) -> None:
        self._bits = bits
        self._kit = Kit.open(kit)
        self._views = views
        self._memory: dict[tuple[str, int], FloatArray] = {}
        self._start = self._fitted(views.center)

    def start(self) -> float:
        """Top-1 in percent on the test photos before the first step."""
        return 100 * float(self._right(self._engine(self._start)).mean())

    def computed(self) -> float:
        """The same of the classifier computed from all photos, with none set aside."""
        return 100 * float(self._right(self._engine(self._fitted(_all(self._views.chosen)))).mean())

    def accuracy(self, settings: TrainSettings) -> float:
        """Top-1 in percent on the test photos after the last step."""
        return 100 * float(self._right(self._trained(settings)).mean())

    def error(self) -> float:
        """Root mean square of what rounding changes, relative to that of the features."""
        engine = self._engine(self._start)
        features = engine.prepare(self._views.epoch(0, 0)[0][0])
        code = Code(features.shape[1:], self._bits)
        change = code.features(features).decoded() - features
        return float(np.linalg.norm(change) / np.linalg.norm(features))

    def recalls(self, settings: TrainSettings | None) -> list[float]:
        """Top-1 of each class in percent, after the last step; None is before the first."""
        engine = self._engine(self._start) if settings is None else self._trained(settings)
        right, (_, labels) = self._right(engine), self._views.test
        return [100 * float(right[labels == label].mean()) for label in np.unique(labels)]

    def _trained(self, settings: TrainSettings) -> OnnxEngine:
        per_epoch, parameters = self._views.steps, self._kit.manifest.parameters
        settings = settings.resolved(
            images=BATCH,
            steps_per_epoch=per_epoch,
            validation=0,
            photos=len(self._views.train),
            imbalance=imbalance(self._views.train.groups),
        )
        adjustment = Adjustment.of(
            self._views.train, self._kit.manifest.task, settings.balance or 0.0
        )
        start = self._start if adjustment is None else adjustment.add_to(self._start)
        engine = self._engine(start)
        optimizer = create_optimizer(
            settings.optimizer, engine.parameters, rates=settings.rates(parameters)
        )
        steps = settings.total_steps(per_epoch)
        schedule = CosineSchedule(settings.peak_rates().main, steps, settings.warmup)
        for step in range(steps):
            images, labels = self._views.epoch(settings.seed, step // per_epoch)[step % per_epoch]
            rng = random_stream(settings.seed, Purpose.DROPOUT, step)
            gradients = engine.gradients(images, labels, rng)
            optimizer.step(gradients.values, lr=schedule(step))
            del gradients  # views of the runtime's memory
        if adjustment is not None:
            engine.load(adjustment.remove_from(engine.state()))
        return engine

    def _engine(self, state: State) -> Remembering:
        engine = Remembering(self._kit, state)
        engine.memory, engine.bits = self._memory, self._bits
        return engine

    def _right(self, engine: OnnxEngine) -> Any:
        pixels, labels = self._views.test
        return engine.predict(pixels).argmax(1) == labels

    def _fitted(self, center: tuple[Any, Any]) -> State:
        """The kit's values with a classifier from the data, as every run starts."""
        task = self._views.train.labeled
        task = replace(self._kit.manifest.task, classes=task.classes)
        drawn = task.new_head(
            Model.of(self._kit).state, len(task.classes), random_stream(0, Purpose.CLASSIFIER)
        )
        pixels, labels = center
        embeddings = self._engine(drawn).embed(pixels)
        head = fit_head(lambda: iter([(embeddings, labels)]), task)
        assert head is not None, "a classification has a closed form"
        weight, bias = task.head
        fitted = {weight: head.weight.reshape(drawn[weight].shape), bias: head.bias}
        return {**drawn, **{name: value.astype(np.float32) for name, value in fitted.items()}}


def _first(labels: Any, per_class: int | Sequence[int] | None) -> list[int]:
    """Positions of the first photos of each class."""
    names = np.unique(labels)
    limit = len(labels) if per_class is None else per_class
    limits = [limit] * len(names) if isinstance(limit, int) else limit
    places = [np.flatnonzero(labels == n)[:most] for n, most in zip(names, limits, strict=True)]
    return sorted(int(place) for part in places for place in part)


def _without_a_fifth(labels: Any) -> list[int]:
    places = (np.flatnonzero(labels == label) for label in np.unique(labels))
    return sorted(int(place) for part in places for place in part[len(part) // 5 :])


def _all(photos: ImageDataset) -> tuple[Any, Any]:
    batches = list(Loader(photos, size=SIZE, batch=64, train=False).epoch(0))
    images, labels = ([getattr(b, part) for b in batches] for part in ("images", "labels"))
    return np.concatenate(images), np.concatenate(labels)
