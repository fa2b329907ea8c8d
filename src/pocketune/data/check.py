"""What makes labeled images unfit to train on, each said in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.errors import PocketuneError, Remedy
from pocketune.files import Skipped, reading, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pocketune.data.dataset import ImageDataset
    from pocketune.data.layouts.folders import Example


def check_exists(path: Path) -> None:
    """The user's path leads somewhere."""
    with reading(shown(str(path)), remedy="check the path and its permissions"):
        found = path.exists()
    if not found:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path")


def check_any(known: Sequence[Example], skipped: Sequence[Skipped], where: str) -> None:
    """At least one file is an image."""
    if known:
        return
    first = f"; the first, {shown(skipped[0].name)}: {skipped[0].reason}" if skipped else ""
    raise PocketuneError(f"{where} has no readable image among its {len(skipped)} files{first}")


def check_complete(examples: Sequence[Example], known: Sequence[Example], where: str) -> None:
    """No class was lost because none of its files is an image."""
    lost = sorted({example.label for example in examples} - {example.label for example in known})
    if lost:
        raise PocketuneError(
            f"the class {shown(lost[0])!r} in {where} has no readable image; add images to it or "
            "remove it"
        )


def check_kind(attributes: Sequence[str], wanted: bool | None, where: str) -> None:
    """Images have attributes, or a class each, as is ``wanted``; with None either will do."""
    if wanted is True and not attributes:
        raise PocketuneError(
            f"{where} gives each image a class, but this kit is for attributes: give a CSV of file "
            "and a column for each attribute, or a kit for classes"
        )
    if wanted is False and attributes:
        raise PocketuneError(
            f"{where} gives images attributes, but this kit is for classes: give a CSV of file and "
            "label, or a kit for attributes",
            remedy=Remedy("attribute kit", "compile one with the loss binary_cross_entropy"),
        )


def check_attributes(attributes: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """There is a column for each attribute that is ``wanted``."""
    missing = [name for name in wanted if name not in attributes]
    if missing:
        raise PocketuneError(
            f"{where} has no column for the attribute {shown(missing[0])!r} that was trained; its "
            f"columns are {shown(', '.join(attributes), 200)}"
        )


def check_classes(known: Sequence[Example], classes: Sequence[str], where: str) -> None:
    """Every label is one of ``classes``."""
    strange = sorted({example.label for example in known} - set(classes))
    if strange:
        raise PocketuneError(
            f"{where} has images of the class {shown(strange[0])!r}, which is not one of the "
            f"{len(classes)} classes trained: {shown(', '.join(classes), 200)}"
        )


def check_singles(dataset: ImageDataset) -> None:
    """Every class has an image for either side of a division."""
    for label, count in enumerate(np.bincount(dataset.labels, minlength=len(dataset.classes))):
        if count == 1:
            name = dataset.names[int(np.flatnonzero(dataset.labels == label)[0])]
            raise PocketuneError(
                f"the class {shown(dataset.classes[label])!r} has a single readable image, "
                f"{shown(name)}, but one has to train and another to validate; add a second one"
            )


def check_trainable(train: ImageDataset, val: ImageDataset, where: str) -> None:
    """What trains differs, in classes among which are all that validate, or in attributes."""
    if not len(train):  # nothing is to be trained: an evaluation
        return
    if train.has_attributes:
        if (train.labels == train.labels[0]).all():
            raise PocketuneError(
                f"the training images in {where} all have the same attributes; add images that "
                "differ in at least one"
            )
        return
    trained = set(train.labels.tolist())
    if len(trained) == 1:
        only = shown(train.classes[trained.pop()])
        raise PocketuneError(
            f"{where} has training images of one class only, {only!r}; add at least one other class"
        )
    unseen = sorted(set(val.labels.tolist()) - trained)
    if unseen:
        raise PocketuneError(
            f"the class {shown(train.classes[unseen[0]])!r} in {where} has validation images but "
            "no training images; add some or remove the class"
        )
