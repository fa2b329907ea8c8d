"""Evaluate a model on labeled photos."""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
    stratify,
)
from pocketune.data.copies import describe_copies
from pocketune.data.names import name_digests
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.device.head import left_out
from pocketune.device.memory.budget import check_peak, check_prediction, limited
from pocketune.device.memory.process import reclaim
from pocketune.device.memory.sizes import parse_pixels
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.photos import count_named, load_photos, mask_options, masks_of
from pocketune.device.train.record import RunRecord
from pocketune.device.train.resuming import photos_path
from pocketune.device.train.settings import TrainSettings
from pocketune.device.train.start import KEPT, RANDOM
from pocketune.device.use.model import Model, as_model
from pocketune.device.use.windows import OVERLAP, Window, Windows, check_window
from pocketune.errors import PocketuneError, Remedy, counted, printable
from pocketune.heap import freed_at_once
from pocketune.kit.names import LAST
from pocketune.tasks import Evaluation, Labels, View

AfterPhotos = Callable[[int, int], None]
"""Called with the number of photos so far and of all."""

MOST_BY_OTHERS = 2_000
"""Photos whose embeddings are kept in memory, to predict each by the classifier of all others."""

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
    if photos is None and test:
        photos = photos_path(_checkpoint(model), None)
    if photos is None and masks not in (None, MaskOptions()):
        raise PocketuneError(
            "the masks of a run's own photos are read as in its training: leave ignore and "
            "class_names out, or name the photos"
        )
    if photos is None and max_pixels is not None:
        raise PocketuneError(
            "the run's own photos are those of its training: leave max_pixels out, or name the "
            "photos"
        )
    by_others = False
    if photos is None:
        splits, by_others = _held_back(model)
    else:
        most = None if max_pixels is None else parse_pixels(max_pixels)
        masks = masks or MaskOptions()
        if model.task.dense:
            masks = masks_of(model.kit, masks)
        splits = _all(photos, model, test, masks, most)
        splits = splits if test else _without_training_photos(model, splits, Path(photos))
    dataset, skipped = splits.val, splits.skipped
    batches = dataset if window == "whole" else None
    check_prediction(model, limit, before, splits.decoding, batches)
    later: list[Skipped] = []
    seen = partial(_counted, len(dataset), after_photos)
    if window == "slide":
        result = model.task.evaluate(
            seen(_slid(model, dataset, Windows(manifest, overlap), later, limit))
        )
    else:
        loader = Loader(dataset, size=manifest.size, batch=manifest.batch, train=False)
        predicted = _predicted_by_others if by_others else _predicted
        result = model.task.evaluate(seen(predicted(model, loader, limit)))
        later += loader.skipped
    if not result.images:
        raise PocketuneError(f"{dataset.root} has no readable photo to evaluate")
    return result.with_skipped((*skipped, *later))


def _counted(
    photos: int, after: AfterPhotos, outputs: Iterator[tuple[FloatArray, Labels]]
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


def _all(
    photos: StrPath, model: Model, test: bool, masks: MaskOptions, max_pixels: int | None
) -> Splits:
    return load_splits(
        Path(photos),
        val_fraction=1.0,
        classes=model.classes,
        task=model.task,
        test="only" if test else "validate",
        masks=masks,
        size=model.manifest.size,
        max_pixels=max_pixels,
    )


def _without_training_photos(model: Model, splits: Splits, place: Path) -> Splits:
    """Of the run's own photos, wherever they are now, those that it held back; of others, all.

    Where the run's photos were, others may have been added: of these, too, all.
    """
    last = model.kit.find(LAST)
    if last is None:
        if model.kit.is_run and not len(splits.train):  # else the photos are divided
            _log.info(
                "%s does not say which photos it was trained on; if they are among these, the "
                "figures are too good",
                model.kit.path,
            )
        return splits
    checkpoint, dataset = Checkpoint.load(last), splits.val
    settings = checkpoint.settings
    train, val = stratify(dataset.groups, val_fraction=settings.val_fraction, seed=settings.seed)
    own = replace(splits, train=dataset.subset(train), val=dataset.subset(val))
    used = own.thinned(checkpoint.most)
    if used.fingerprint() != checkpoint.identity.photos:
        if place.resolve() == Path(checkpoint.photos).resolve():
            return _new_ones(splits, checkpoint, place)
        _note_names(dataset, checkpoint, place)
        return splits
    trained = f"the run was trained on {len(used.train)} of these {len(dataset)} photos"
    if not len(val):
        _log.info("%s, so that the figures are too good", trained)
        return splits
    _log.info("%s; the %d that it held back are evaluated", trained, len(val))
    _note_choice(model)
    _note_earlier(own.val, checkpoint, place)
    return own


def _note_names(dataset: ImageDataset, checkpoint: Checkpoint, place: Path) -> None:
    """Say how many photos elsewhere have names of training photos; they may be others."""
    named = count_named(dataset.names, place, checkpoint.seen)
    if named:
        _log.info(
            "%d of these %d photos have the names of photos that the run was trained on; if they "
            "are the same, the figures are too good",
            named,
            len(dataset),
        )


def _note_earlier(held_back: ImageDataset, checkpoint: Checkpoint, place: Path) -> None:
    """Say how many photos that a run held back have names of those of the runs before it."""
    if checkpoint.earlier is not None:
        _note_names(held_back, checkpoint, place)


def _new_ones(splits: Splits, checkpoint: Checkpoint, place: Path) -> Splits:
    """Those of changed photos whose names are not of the training photos."""
    dataset = splits.val
    is_new = ~np.isin(name_digests(dataset.names), checkpoint.trained)
    if is_new.all():
        return splits
    changed = f"{place} has changed since the run was trained on {(~is_new).sum()} photos in it"
    if not is_new.any():
        _log.info("%s, and has no others, so that the figures are too good", changed)
        return splits
    _log.info("%s; the other %d are evaluated", changed, is_new.sum())
    return replace(splits, val=dataset.subset(np.flatnonzero(is_new)))


def _checkpoint(model: Model) -> Checkpoint:
    last = model.kit.find(LAST)
    if last is None:
        nowhere = f"is a run without {LAST}, which says where its photos are"
        what = nowhere if model.kit.is_run else "is not a run"
        raise PocketuneError(
            f"{model.kit.path} {what}", remedy=Remedy("name photos", "give photos")
        )
    return Checkpoint.load(last)


def _held_back(model: Model) -> tuple[Splits, bool]:
    """The photos that a run held back to validate on; without any, those it was trained on.

    The second value says that it is the latter, which is for classifiers that were computed from
    them without a step: each photo is to be predicted by the one of all others.
    """
    splits = run_photos(model)
    if copied := describe_copies(splits):
        _log.info("%s", copied)
    checkpoint = _checkpoint(model)
    if len(splits.val):
        _note_choice(model)
        _note_earlier(splits.val, checkpoint, Path(checkpoint.photos))
        return splits, False
    counters, photos = checkpoint.counters, len(splits.train)
    scored = counters.step == 0 and counters.estimate is not None
    computed = scored and counters.head not in (KEPT, RANDOM)
    if not computed or model.manifest.embeddings is None or photos > MOST_BY_OTHERS:
        raise PocketuneError(
            f"the run {model.kit.path} held no photos back",
            remedy=Remedy("evaluate photos", "give photos to evaluate"),
        )
    _log.info(
        "the run held no photos back: each of its photos is predicted by the classifier that is "
        "computed from all others"
    )
    return replace(splits, val=splits.train), True


def _note_choice(model: Model) -> None:
    """Say if the photos that a run held back also chose its values."""
    chosen = False
    with suppress(PocketuneError):  # a run that is not finished has no record
        chosen = RunRecord.read(model.kit.path).steps > 0
    if chosen:
        _log.info(
            "these validation photos also chose between the start and the steps of the run, which "
            "flatters the figures; photos that it has not seen tell how good it is"
        )


def run_photos(model: Model, moved: StrPath | None = None) -> Splits:
    """The photos of a run, divided as in the run.

    Args:
        model: The model of a run.
        moved: New location of the photos, if they have moved. A run without a checkpoint, such as
            one of the studio, needs it: photos that are divided as in the run.

    Raises:
        PocketuneError: The model is not a run, or its photos are gone or have changed.
    """
    if moved is not None and model.kit.is_run and model.kit.find(LAST) is None:
        return _divided_photos(model, Path(moved))
    checkpoint = _checkpoint(model)
    settings, place = checkpoint.settings, photos_path(checkpoint, moved)
    splits = _load(place, model, settings, checkpoint.most)
    if splits.fingerprint() != checkpoint.identity.photos:
        raise PocketuneError(
            f"the photos in {place} have changed since the run in {model.kit.path} started, so its "
            "validation photos may be among those it was trained on: restore them, or name the "
            "photos to evaluate"
        )
    return splits


def _divided_photos(model: Model, place: Path) -> Splits:
    """Photos whose own division has as many in each part as the record of the run."""
    record = RunRecord.read(model.kit.path)
    settings = replace(TrainSettings.from_dict(record.settings), val_fraction=0.0)
    splits = _load(place, model, settings)
    given = len(splits.train), len(splits.val)
    own = record.photos.training, record.photos.validation
    if given != own:
        raise PocketuneError(
            f"{place} has {given[0]:,} photos to train on and {given[1]:,} to validate, and the "
            f"run in {model.kit.path} had {own[0]:,} and {own[1]:,}: give its own photos, divided "
            "as in the run"
        )
    return splits


def _load(place: Path, model: Model, settings: TrainSettings, most: int | None = None) -> Splits:
    return load_photos(
        place,
        settings,
        task=model.task,
        classes=model.classes,
        size=model.manifest.size,
        masks=mask_options(settings, inherited=True),
        most=most,
    )
