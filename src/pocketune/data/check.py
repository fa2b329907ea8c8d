"""What makes labelled images unfit to train on, each said in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pocketune.data.skipped import Skipped, shown
from pocketune.errors import PocketuneError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pocketune.data.dataset import ImageDataset
    from pocketune.data.example import Example


def check_exists(path: Path) -> None:
    """The user's path leads somewhere."""
    try:
        path.stat()
    except FileNotFoundError as error:
        raise PocketuneError(f"{shown(str(path))} does not exist; check the path") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise PocketuneError(
            f"{shown(str(path))} cannot be opened ({why}); check the path and its permissions"
        ) from error


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
    """What trains has two classes or more, among them all that validate."""
    if not len(train):  # nothing is to be trained: an evaluation
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
