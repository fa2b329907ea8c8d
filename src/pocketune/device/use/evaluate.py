"""How well does a model know labeled photos?"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pocketune.arrays import StrPath
from pocketune.data import Batch, ImageDataset, Loader, Skipped, load_splits
from pocketune.device.engine.base import Engine
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.results import AttributeEvaluation, Evaluation
from pocketune.errors import PocketuneError
from pocketune.kit.names import LAST

TOP = 5


def evaluate(
    model: Model | StrPath,
    photos: StrPath | None = None,
) -> Evaluation | AttributeEvaluation:
    """Classify labeled photos, or tell their attributes, and count.

    Args:
        model: The folder of a run, or a kit.
        photos: A folder of class folders, a CSV of file and label or of file and attributes, or a
            .zip of either. Where they come divided, those that validate; else all of them. None
            for the photos that the run itself has held back.

    Returns:
        An ``AttributeEvaluation`` where the model tells attributes.

    Raises:
        PocketuneError: The model or the photos cannot be used, the photos have a class that the
            model does not know or lack an attribute that it does, or ``photos`` is missing and
            the model is not a run or its photos are no longer the same.
    """
    model = as_model(model)
    dataset, skipped = _held_back(model) if photos is None else _all(photos, model)
    manifest = model.kit.manifest
    loader = Loader(dataset, size=manifest.size, batch=manifest.batch, train=False)
    count = _count_attributes if manifest.has_attributes else _count_classes
    result = count(OnnxEngine(model.kit, model.state), loader.epoch(0), model.classes)
    if not result.images:
        raise PocketuneError(f"{dataset.root} has no readable photo to evaluate")
    return replace(result, skipped=(*skipped, *loader.skipped))


_Found = tuple[ImageDataset, tuple[Skipped, ...]]


def _all(photos: StrPath, model: Model) -> _Found:
    splits = load_splits(
        Path(photos),
        val_fraction=1.0,
        classes=model.classes,
        attributes=model.kit.manifest.has_attributes,
    )
    return splits.val, splits.skipped


def _held_back(model: Model) -> _Found:
    last = model.kit.path / LAST
    if not last.is_file():
        raise PocketuneError(f"{model.kit.path} is not a run: give photos to evaluate it on")
    checkpoint = Checkpoint.load(last)
    settings = checkpoint.settings
    splits = load_splits(
        checkpoint.photos,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        classes=model.classes,
        attributes=model.kit.manifest.has_attributes,
    )
    if splits.fingerprint() != checkpoint.identity.photos:
        raise PocketuneError(
            f"the photos in {checkpoint.photos} have changed since the run in {model.kit.path} "
            "started, so its validation photos may be among those it was trained on: restore them, "
            "or give other photos to evaluate"
        )
    if not len(splits.val):
        raise PocketuneError(
            f"the run {model.kit.path} has no validation photos: give photos to evaluate"
        )
    return splits.val, splits.skipped


def _count_classes(
    engine: Engine, batches: Iterable[Batch], classes: tuple[str, ...]
) -> Evaluation:
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    among_top = 0
    for batch in batches:
        likeliest = np.argsort(-engine.predict(batch.images), axis=1, kind="stable")[:, :TOP]
        np.add.at(confusion, (batch.labels, likeliest[:, 0]), 1)
        among_top += int((likeliest == batch.labels[:, None]).sum())
    return Evaluation(classes, confusion, among_top)


def _count_attributes(
    engine: Engine, batches: Iterable[Batch], attributes: tuple[str, ...]
) -> AttributeEvaluation:
    counts = np.zeros((len(attributes), 2, 2), np.int64)
    numbers = np.arange(len(attributes))
    for batch in batches:
        told = (engine.predict(batch.images) > 0).astype(np.intp)
        np.add.at(counts, (numbers, batch.labels, told), 1)
    return AttributeEvaluation(attributes, counts)
