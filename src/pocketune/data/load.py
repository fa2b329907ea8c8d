"""Load labeled images as datasets for training and validation."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from pocketune.data.dataset import VAL_FRACTION, ImageDataset, Splits, stratify
from pocketune.data.examples import Examples
from pocketune.data.finding import Found, NoClasses, find, has_test
from pocketune.data.images.cost import MASK_BYTES, LargestDecoding
from pocketune.data.labels.layouts import TEST, TRAIN, TestUse
from pocketune.data.masks.drawn import DrawnSource
from pocketune.data.masks.numbered import AfterMask, Masks, scan
from pocketune.data.masks.values import MaskOptions, value_names
from pocketune.data.readable import read_headers
from pocketune.data.sources import source_at
from pocketune.errors import PocketuneError, counted
from pocketune.files import Skipped, shown
from pocketune.tasks import TASKS, Task, task_named
from pocketune.tasks.segmentation import Mask, class_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def load_splits(
    path: str | Path,
    *,
    val_fraction: float | None = VAL_FRACTION,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    task: Task | str | None = None,
    test: TestUse = "hold out",
    masks: MaskOptions | None = None,
    after_mask: AfterMask = lambda _done, _all: None,
    size: int | None = None,
    max_pixels: int | None = None,
) -> Splits:
    """Find labeled images and divide them into training and validation.

    The header of every file is read, so a file that is not an image is found now. A file that is
    damaged behind its header is found when it is decoded. Masks are decoded once, one by one: which
    values they have, and whether they fit their images, is known before training.

    Args:
        path: A folder of class folders (also under `train/`, `val/` and `test/`), folders of
            images and masks (see `read_pairs`), a table (see `read_table` and `choose_tables`),
            annotations in COCO's format (see `read_annotations`), of labelme (`read_labelme`) or
            YOLO (`read_yolo`), or a .zip of any of these. In a folder or archive with fewer than
            two class folders, or with a table of images and masks, the table is used.
        val_fraction: Fraction for validation if the data is not divided. Where images have classes,
            it is the fraction of each class. None is a fifth of each class of ten or more photos.
        seed: Seed of the division.
        classes: Names of the classes, in the order of a trained network's outputs; by default the
            classes that are found, in the task's order.
        task: The task whose labels are read, or its name; by default the first task that recognizes
            the labels.
        test: What the photos of `test` are for: held out, the only ones to load, as validation
            photos, or to validate if there are no others.
        masks: How the values of masks are read; None for the defaults of `MaskOptions`.
        after_mask: Called after each mask with the number of masks that were read and of all.
        size: Height and width of the squares that the images will be cut to, to know what decoding
            them takes.
        max_pixels: Leave out images of more pixels that would be decoded in full; see
            `check_size`.

    Raises:
        PocketuneError: The path or its content cannot be used; the message says why.
    """
    tasks = tuple(TASKS.values()) if task is None else (_kind(task),)
    found, where = find(Path(path), tasks, test), shown(str(Path(path)))
    if masks is not None and masks != MaskOptions() and not found.task.dense:
        masks.check_unused(found.task.name)
    if test == "only" and not found.examples:
        raise PocketuneError(
            f"{where} has no test photos: they belong into a folder named {TEST}, or a table has "
            f"{TEST} for them in a column named split"
        )
    if not found.examples and has_test(path):
        raise PocketuneError(f"{where} has test photos alone; add some to train on")
    largest = None if size is None else LargestDecoding(size, _mask_bytes(found))
    readable, skipped = read_headers(found.source, found.examples.names, largest, max_pixels)
    usable = found.examples.take(readable)
    if found.task.dense:
        usable, damaged = scan(found.source, usable, after_mask, largest)
        skipped += damaged
    _check_any(usable, skipped, where)
    if found.task.dense:
        found = _with_values(found, usable, masks or MaskOptions(), where, classes)
    dataset = _dataset(found, usable, classes, where)
    if isinstance(task, Task):
        dataset = replace(dataset, task=replace(task, classes=dataset.classes))
    held_out = _held_out(usable)
    if held_out is None:
        divided = stratify(dataset.groups, val_fraction=val_fraction, seed=seed)
    else:
        divided = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    train, val = map(dataset.subset, divided)
    if len(train) and test == "hold out":  # nothing is learned in an evaluation
        dataset.labeled.check_training(train.labels, val.labels, where)
    skipped += _left_out(found, usable)
    decoding = None if largest is None else largest.decoding
    return Splits(train, val, tuple(sorted(skipped)), decoding, divided=held_out is not None)


def _left_out(found: Found, usable: Examples) -> Iterator[Skipped]:
    """Photos without a label, and folders without photos."""
    parts = " and ".join(sorted(str(part) for part in usable.parts.distinct() if part))
    folders = f"the class folders of {parts}" if parts else "the class folders"
    for names, reason in (
        (found.outside, f"it is outside {folders}"),
        (found.unlabeled, "it has no label; that of a photo without objects is empty"),
    ):
        photos, _ = read_headers(found.source, names)
        yield from (Skipped(name, reason) for name in names.take(photos))
    yield from (Skipped(name, "an empty folder") for name in found.empty)


def unlabeled_splits(path: str | os.PathLike[str]) -> tuple[ImageDataset, ImageDataset]:
    """Photos without their labels, divided as by `load_splits`, but as if they were of one class.

    They are those that labels are found of, or all images of a folder or archive without labels.

    Returns:
        The larger part, and the one for validation.

    Raises:
        PocketuneError: There is neither a folder, an archive nor a list of photos, or their labels
            cannot be read.
    """
    place, held_out = Path(path), None
    try:
        found = find(place, tuple(TASKS.values()), "hold out")
        source, names, held_out = found.source, found.examples.names, _held_out(found.examples)
    except NoClasses:  # with labels that cannot be read, some images may be masks
        source = source_at(place)
        names = source.names()
    readable, _ = read_headers(source, names)
    nothing = np.full(len(readable), -1, np.int64)
    photos = ImageDataset(source, names.take(readable), nothing, task=None)
    if held_out is None:
        train, val = stratify(photos.groups, val_fraction=None, seed=0)
    else:
        train, val = (np.flatnonzero(held_out[readable] == part) for part in (False, True))
    return photos.subset(train), photos.subset(val)


def _mask_bytes(found: Found) -> int:
    """Bytes for each pixel of a mask while it is read; 0 without masks."""
    if not found.task.dense:
        return 0
    return found.source.mask_bytes if isinstance(found.source, DrawnSource) else MASK_BYTES


def training_images(photos: ImageDataset | str | os.PathLike[str]) -> ImageDataset:
    """The dataset itself; for a path, its training images, as a run divides them by default.

    Raises:
        PocketuneError: See `load_splits`.
    """
    if isinstance(photos, ImageDataset):
        return photos
    return load_splits(Path(photos), val_fraction=None).train


def _kind(task: Task | str) -> type[Task]:
    return task_named(task) if isinstance(task, str) else type(task)


def _with_values(
    found: Found,
    usable: Examples,
    options: MaskOptions,
    where: str,
    classes: Sequence[str] | None,
) -> Found:
    """With the class of each value of the masks as titles."""
    labels = cast("Sequence[Mask]", usable.labels)
    return found._replace(titles=value_names(labels, options, where, found.listed, classes))


def _dataset(
    found: Found, usable: Examples, classes: Sequence[str] | None, where: str
) -> ImageDataset:
    """The usable images, with labels encoded by the task."""
    names = classes or found.task.find_classes(found.examples.labels.distinct(), found.titles)
    task = found.task(tuple(names))
    labels = task.encode(usable.labels, found.titles, where, complete=classes is None)
    labels.setflags(write=False)
    masks = Masks(found.source, class_numbers(found.titles, task.classes)) if task.dense else None
    return ImageDataset(found.source, usable.names, labels, task, masks)


def _held_out(examples: Examples) -> NDArray[np.bool_] | None:
    """Which images (n,) the user holds out for validation; None if they are not divided."""
    parts = enumerate(examples.parts.values)
    validation = [number for number, part in parts if part not in (None, TRAIN)]
    held_out = np.isin(examples.parts.numbers, validation)
    return held_out if held_out.any() else None


def _check_any(known: Examples, skipped: Sequence[Skipped], where: str) -> None:
    """Check that at least one file is an image."""
    if known:
        return
    if not skipped:
        raise PocketuneError(f"{where} lists no files; add a line for each image")
    first = f"; the first, {shown(skipped[0].name)}: {skipped[0].reason}"
    raise PocketuneError(
        f"{where} has no readable image among its {counted(len(skipped), 'file')}{first}"
    )
