"""Evaluate a model on labeled photos."""

from collections.abc import Iterator
from pathlib import Path

from pocketune.arrays import FloatArray, StrPath
from pocketune.data import ImageDataset, Loader, Skipped, Splits, load_splits
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.use.model import Model, as_model
from pocketune.errors import PocketuneError
from pocketune.kit.names import LAST
from pocketune.tasks import Evaluation, Labels


def evaluate(
    model: Model | StrPath, photos: StrPath | None = None, *, test: bool = False
) -> Evaluation:
    """Compare a model's predictions for labeled photos with their labels.

    Args:
        model: A run folder or a kit.
        photos: A folder of class folders, a CSV of file and label or of file and attributes, or a
            .zip of either. If the photos are divided, only the validation part is used. None stands
            for the run's own validation photos.
        test: Use only the photos of the part ``test``, which a run with ``hold_out_test`` has not
            seen.

    Returns:
        The evaluation of the model's task: a ``ClassEvaluation`` or an ``AttributeEvaluation``.

    Raises:
        PocketuneError: The model or the photos cannot be used; the photos have a class that the
            model does not know, or lack one of its attributes; or ``photos`` is None, and the model
            is not a run or its photos have changed.
    """
    model = as_model(model)
    if photos is None and test:
        photos = _checkpoint(model).photos
    dataset, skipped = _held_back(model) if photos is None else _all(photos, model, test)
    manifest = model.kit.manifest
    loader = Loader(dataset, size=manifest.size, batch=manifest.batch, train=False)
    result = model.task.evaluate(_predicted(model, loader))
    if not result.images:
        raise PocketuneError(f"{dataset.root} has no readable photo to evaluate")
    return result.with_skipped((*skipped, *loader.skipped))


def _predicted(model: Model, loader: Loader) -> Iterator[tuple[FloatArray, Labels]]:
    engine = OnnxEngine(model.kit, model.state)
    for batch in loader.epoch(0):
        yield engine.predict(batch.images), batch.labels


_Found = tuple[ImageDataset, tuple[Skipped, ...]]


def _all(photos: StrPath, model: Model, test: bool) -> _Found:
    splits = load_splits(
        Path(photos),
        val_fraction=1.0,
        classes=model.classes,
        task=model.task,
        test="only" if test else "validate",
    )
    return splits.val, splits.skipped


def _checkpoint(model: Model) -> Checkpoint:
    last = model.kit.path / LAST
    if not last.is_file():
        raise PocketuneError(f"{model.kit.path} is not a run: give photos to evaluate it on")
    return Checkpoint.load(last)


def _held_back(model: Model) -> _Found:
    splits = run_photos(model)
    if not len(splits.val):
        raise PocketuneError(
            f"the run {model.kit.path} has no validation photos: give photos to evaluate"
        )
    return splits.val, splits.skipped


def run_photos(model: Model, moved: StrPath | None = None) -> Splits:
    """The photos of a run, divided as in the run.

    Args:
        model: The model of a run.
        moved: New location of the photos, if they have moved.

    Raises:
        PocketuneError: The model is not a run, or its photos are gone or have changed.
    """
    checkpoint = _checkpoint(model)
    settings, place = checkpoint.settings, Path(moved or checkpoint.photos)
    splits = load_splits(
        place,
        val_fraction=settings.val_fraction,
        seed=settings.seed,
        classes=model.classes,
        task=model.task,
        test="hold out" if settings.hold_out_test else "validate",
    )
    if splits.fingerprint() != checkpoint.identity.photos:
        raise PocketuneError(
            f"the photos in {place} have changed since the run in {model.kit.path} started, so its "
            "validation photos may be among those it was trained on: restore them, or give other "
            "photos to evaluate"
        )
    return splits
