"""Evaluate a model on labeled photos."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pocketune.arithmetic import usual_arithmetic
from pocketune.arrays import FloatArray, StrPath
from pocketune.data import (
    ImageDataset,
    Loader,
    MaskOptions,
    Skipped,
    Splits,
    UnreadableImage,
    load_splits,
)
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.head import left_out
from pocketune.device.memory.budget import check_peak, check_prediction, limited
from pocketune.device.memory.process import reclaim
from pocketune.device.memory.sizes import parse_pixels
from pocketune.device.train.photos import masks_of
from pocketune.device.train.resuming import photos_path
from pocketune.device.use.held_back import checkpoint_of, held_back, without_training_photos
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.windows import OVERLAP, Window, Windows, check_window
from pocketune.errors import PocketuneError, counted, printable
from pocketune.heap import freed_at_once
from pocketune.tasks import Evaluation, Labels, View

AfterPhotos = Callable[[int, int], None]
"""Called with the number of photos so far and of all."""

NO_OTHER = "could not be tested this way: no other shows the same class"
"""What to say of photos that are the only ones of their classes."""

_log = logging.getLogger(__name__)


@usual_arithmetic
def evaluate(
    model: Model | StrPath,
    photos: StrPath | None = None,
    *,
    test: bool = False,
    window: Window = "whole",
    overlap: float = OVERLAP,
    masks: MaskOptions | None = None,
    budget: int | str | None = None,
    max_pixels: int | str | None = None,
    after_photos: AfterPhotos = lambda _done, _all: None,
) -> Evaluation:
    """Compare a model's predictions for labeled photos with their labels.

    Args:
        model: A run or a kit.
        photos: A folder of class folders, a CSV of file and label or of file and attributes,
            folders or a CSV of images and masks, or a .zip of these. If the photos are divided,
            only the validation part is used, or `test` where there is no other; of the run's own
            photos, wherever they are now, those that it held back, and those that were added. None
            stands for the run's own validation photos, where they were in its training; for its
            training photos, each predicted by the classifier that is computed from all others, if
            it has none and made no steps. The only photo of a class is then not evaluated.
        test: Use only the photos of the part `test`, which no run has seen.
        window: For masks, whether a photo is seen as a whole or through windows that slide over it.
        overlap: Share of a window that the next one repeats.
        masks: How masks are read; by default as the run reads them.
        budget: Memory limit of the whole process, such as `96MB`.
        max_pixels: Leave out photos of more pixels, such as `12MP`, that would be decoded in
            full. The run's own photos are limited as in its training.
        after_photos: Called after each batch with the number of photos so far and of all.

    Returns:
        The evaluation of the model's task: a `ClassEvaluation`, an `AttributeEvaluation` or a
        `SegmentationEvaluation`. That of masks compares them at their own size.

    Raises:
        BudgetExceeded: The budget has no room for the model or for decoding a photo, or has been
            exceeded.
        PocketuneError: The model or the photos cannot be used; the photos have a class that the
            model does not know, or lack one of its attributes; or `photos` is None, and the model
            is not a run or its photos have changed.
    """
    limit, before = limited(budget)
    model = as_model(model)
    manifest = model.manifest
    check_window(manifest.task, window, overlap)
    splits, by_others = _evaluated(model, photos, masks, max_pixels, test=test)
    dataset, skipped = splits.val, splits.skipped
    batches = dataset if window == "whole" else None
    check_prediction(model, limit, before, splits.decoding, batches)
    later: list[Skipped] = []
    loader = Loader(dataset, size=manifest.size, batch=manifest.batch, train=False)
    if window == "slide":
        predicted = _slid(model, dataset, Windows(manifest, overlap), later, limit)
    elif by_others:
        predicted = _predicted_by_others(model, loader, limit)
    else:
        predicted = _predicted(model, loader, limit)
    result = model.task.evaluate(_counted(predicted, len(dataset), after_photos))
    later += loader.skipped
    if not result.images:
        raise PocketuneError(f"{dataset.root} has no readable photo to evaluate")
    return result.with_skipped((*skipped, *later))


def _evaluated(
    model: Model,
    photos: StrPath | None,
    masks: MaskOptions | None,
    max_pixels: int | str | None,
    *,
    test: bool,
) -> tuple[Splits, bool]:
    """The photos to evaluate, as validation photos, and whether `_predicted_by_others`."""
    if photos is None and test:
        photos = photos_path(checkpoint_of(model), None)
    if photos is None:
        if masks not in (None, MaskOptions()):
            raise PocketuneError(
                "the masks of a run's own photos are read as in its training: leave ignore and "
                "class_names out, or name the photos"
            )
        if max_pixels is not None:
            raise PocketuneError(
                "the run's own photos are those of its training: leave max_pixels out, or name the "
                "photos"
            )
        return held_back(model)
    masks = masks or MaskOptions()
    splits = load_splits(
        Path(photos),
        val_fraction=1.0,
        classes=model.classes,
        task=model.task,
        test="only" if test else "validate",
        masks=masks_of(model.kit, masks) if model.task.dense else masks,
        size=model.manifest.size,
        max_pixels=None if max_pixels is None else parse_pixels(max_pixels),
    )
    return splits if test else without_training_photos(model, splits, Path(photos)), False


def _counted(
    outputs: Iterator[tuple[FloatArray, Labels]], photos: int, after: AfterPhotos
) -> Iterator[tuple[FloatArray, Labels]]:
    """The same, and after each batch the number of photos so far."""
    done = 0
    for output, labels in outputs:
        yield output, labels
        done += len(output)
        after(done, photos)


def _predicted(
    model: Model, loader: Loader, limit: int | None
) -> Iterator[tuple[FloatArray, Labels]]:
    engine = OnnxEngine(model.kit, model.state)
    for batch in loader.epoch(0):
        yield engine.predict(batch.images), batch.labels
        check_peak(limit)


def _predicted_by_others(
    model: Model, loader: Loader, limit: int | None
) -> Iterator[tuple[FloatArray, Labels]]:
    """The output for each photo of the classifier that is computed from all others.

    The only photo of a class has none.
    """
    engine = OnnxEngine(model.kit, model.state)
    parts = []
    for batch in loader.epoch(0):
        parts.append((engine.embed(batch.images), batch.labels))
        check_peak(limit)
    engine.release()
    reclaim()  # the graphs make room for the fit
    with freed_at_once():
        found = left_out(lambda: iter(parts), model.task) if parts else None
    check_peak(limit)
    if found is None:
        return
    untested = len(found.tested) - len(found.outputs)
    if untested:
        _log.info("%s %s", counted(untested, "photo"), NO_OTHER)
    yield found.outputs, np.concatenate([labels for _, labels in parts])[found.tested]


def _slid(
    model: Model,
    dataset: ImageDataset,
    windows: Windows,
    skipped: list[Skipped],
    limit: int | None,
) -> Iterator[tuple[FloatArray, Labels]]:
    """The output for each photo from sliding windows, and its label."""
    engine, task, size = OnnxEngine(model.kit, model.state), model.task, model.manifest.size
    for index, name in enumerate(dataset.names):
        try:
            photo, seen = windows.open(dataset, index)
            label = dataset.label(index, seen.width, seen.height)
        except UnreadableImage as error:
            skipped.append(Skipped(printable(name), error.reason))
            continue
        truth = task.truth(label, View(seen.box, size))
        yield windows.output(engine, photo, seen)[None], task.collate([truth])
        check_peak(limit)
