"""The photos that a run was trained on, and those that it held back."""

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from pocketune.arrays import StrPath
from pocketune.data import ImageDataset, Splits, stratify
from pocketune.data.copies import describe_copies
from pocketune.data.names import name_digests
from pocketune.device.train.checkpoint import Checkpoint
from pocketune.device.train.photos import count_named, load_photos, mask_options
from pocketune.device.train.record import RunRecord
from pocketune.device.train.resuming import photos_path
from pocketune.device.train.settings import TrainSettings
from pocketune.device.train.start import KEPT, RANDOM
from pocketune.device.use.model import Model
from pocketune.errors import PocketuneError, Remedy
from pocketune.kit.names import LAST

COMPARED = 8
"""About so many training photos are compared with photos of the same names."""
MOST_BY_OTHERS = 2_000
"""Photos whose embeddings are kept in memory, to predict each by the classifier of all others."""

_log = logging.getLogger(__name__)


def without_training_photos(model: Model, splits: Splits, place: Path) -> Splits:
    """Of the run's own photos, wherever they are now, those that it held back; of others, all.

    Where the run's photos were, others may have been added: of these, too, all.

    Args:
        model: A run or a kit.
        splits: The photos; those of `val` are divided.
        place: Where they are.
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
    settings, own = checkpoint.settings, splits
    if not len(splits.train):  # else the user has divided the photos
        train, val = stratify(
            dataset.groups, val_fraction=settings.val_fraction, seed=settings.seed
        )
        own = replace(splits, train=dataset.subset(train), val=dataset.subset(val))
    used = own.thinned(checkpoint.most)
    same_names = used.fingerprint() == checkpoint.identity.photos
    if not same_names or _are_others(used.train, model, checkpoint, place):
        if place.resolve() == Path(checkpoint.photos).resolve():
            return _new_ones(splits, checkpoint, place)
        _note_names(dataset, checkpoint, place)
        return splits
    photos = len(own.train) + len(own.val)
    trained = f"the run was trained on {len(used.train)} of these {photos} photos"
    if not len(own.val):
        _log.info("%s, so that the figures are too good", trained)
        return splits
    _log.info("%s; the %d that it held back are evaluated", trained, len(own.val))
    _note_choice(model)
    _note_earlier(own.val, checkpoint, place)
    return own


def _are_others(training: ImageDataset, model: Model, checkpoint: Checkpoint, place: Path) -> bool:
    """Whether photos that are named as the training photos are others.

    That is known if the training photos are still where they were. Cameras number the photos of
    every session alike.
    """
    first = Path(checkpoint.photos)
    if place.resolve() == first.resolve():
        return False
    try:
        splits = _load(first, model, checkpoint.settings, checkpoint.most)
        if splits.fingerprint() != checkpoint.identity.photos:
            return False
        known = splits.train
        some = range(0, len(known), max(1, len(known) // COMPARED))
        return any(training.read(index) != known.read(index) for index in some)
    except (PocketuneError, OSError):  # the photos have moved, or some are gone
        return False


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


def _note_earlier(dataset: ImageDataset, checkpoint: Checkpoint, place: Path) -> None:
    """Say how many photos that a run held back have names of those of the runs before it."""
    if checkpoint.earlier is not None:
        _note_names(dataset, checkpoint, place)


def count_earlier(model: Model, held: ImageDataset, place: StrPath | None) -> int:
    """How many photos that a run held back have names of those of the runs before it.

    Args:
        model: The model of a run.
        held: The photos that it held back.
        place: New location of the photos, if they have moved.
    """
    last = model.kit.find(LAST)
    checkpoint = None if last is None else Checkpoint.load(last)
    if checkpoint is None or checkpoint.earlier is None:
        return 0
    return count_named(held.names, photos_path(checkpoint, place), checkpoint.seen)


def _new_ones(splits: Splits, checkpoint: Checkpoint, place: Path) -> Splits:
    """Those of changed photos whose names are not of the training photos."""
    dataset = splits.val
    is_new = ~np.isin(name_digests(dataset.names), checkpoint.trained)
    if is_new.all():
        return splits
    what = "has changed, or its masks are read otherwise," if dataset.masks else "has changed"
    changed = f"{place} {what} since the run was trained on {(~is_new).sum()} photos in it"
    if not is_new.any():
        _log.info("%s, and has no others, so that the figures are too good", changed)
        return splits
    _log.info("%s; the other %d are evaluated", changed, is_new.sum())
    return replace(splits, val=dataset.subset(np.flatnonzero(is_new)))


def checkpoint_of(model: Model) -> Checkpoint:
    """The last checkpoint of the run of a model, which says where its photos are.

    Raises:
        PocketuneError: The model is not of a run, or the run has none.
    """
    last = model.kit.find(LAST)
    if last is None:
        what = "does not say where its photos are" if model.kit.is_run else "is not a run"
        raise PocketuneError(
            f"{model.kit.path} {what}", remedy=Remedy("name photos", "give photos")
        )
    return Checkpoint.load(last)


def held_back(model: Model) -> tuple[Splits, bool]:
    """The photos that a run held back to validate on; without any, those it was trained on.

    The second value says that it is the latter, which is for classifiers that were computed from
    them without a step: each photo is to be predicted by the one of all others.

    Raises:
        PocketuneError: The model is not of a run, or the run held no photos back, and none of them
            can be predicted so.
    """
    splits = run_photos(model)
    if copied := describe_copies(splits):
        _log.info("%s", copied)
    checkpoint = checkpoint_of(model)
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
    checkpoint = checkpoint_of(model)
    settings, place = checkpoint.settings, photos_path(checkpoint, moved)
    splits = _load(place, model, settings, checkpoint.most)
    if splits.fingerprint() != checkpoint.identity.photos:
        if moved is not None:
            raise PocketuneError(
                f"the photos in {place} are not those of the run in {model.kit.path}, or have "
                "changed since it started: give its own, as they were"
            )
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
        masks=mask_options(settings, model.classes),
        most=most,
    )
