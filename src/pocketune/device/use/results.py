"""What an evaluation has counted."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import StrPath
from pocketune.data import Skipped
from pocketune.files import writing


@dataclass(frozen=True)
class ClassResult:
    """One class's photos.

    Attributes:
        name: The class.
        images: Photos of it.
        predicted: Photos of any class that were taken for it.
        correct: Photos of it that were taken for it.
    """

    name: str
    images: int
    predicted: int
    correct: int

    @property
    def recall(self) -> float:
        """Share of its photos that were recognized; nan without photos."""
        return _share(self.correct, self.images)

    @property
    def precision(self) -> float:
        """Share of the photos taken for it that are of it; nan where none was."""
        return _share(self.correct, self.predicted)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an evaluation counted.

    Attributes:
        classes: Names of the classes.
        confusion: int64 (classes, classes), photos by their class (row) and what they were taken
            for (column).
        among_top5: Photos whose class is among the five likeliest.
        skipped: Files that were left out, with the reason.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    among_top5: int
    skipped: tuple[Skipped, ...] = ()

    @property
    def images(self) -> int:
        """Photos evaluated."""
        return int(self.confusion.sum())

    @property
    def top1(self) -> float:
        """Share of photos recognized."""
        return _share(int(self.confusion.trace()), self.images)

    @property
    def top5(self) -> float:
        """Share of photos whose class is among the five likeliest; 1 for up to five classes."""
        return _share(self.among_top5, self.images)

    @property
    def per_class(self) -> tuple[ClassResult, ...]:
        """The same by class, in the order of the classes."""
        images, predicted = self.confusion.sum(1).tolist(), self.confusion.sum(0).tolist()
        correct = self.confusion.diagonal().tolist()
        return tuple(map(ClassResult, self.classes, images, predicted, correct))

    def __str__(self) -> str:
        return f"top-1 {self.top1:.1%}, top-5 {self.top5:.1%} of {self.images} photos"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; shares of nothing are None."""
        classes = [
            {
                "class": c.name,
                "images": c.images,
                "correct": c.correct,
                "recall": _known(c.recall),
                "precision": _known(c.precision),
            }
            for c in self.per_class
        ]
        return {
            "images": self.images,
            "top1": self.top1,
            "top5": self.top5,
            "classes": classes,
            "confusion": self.confusion.tolist(),
            "skipped": _reasons(self.skipped),
        }

    def write_confusion(self, path: StrPath) -> None:
        """Write the confusion matrix as CSV: a row for each class, a column for each guess.

        Raises:
            PocketuneError: The file cannot be written.
        """
        rows = zip(self.classes, self.confusion.tolist(), strict=True)
        _write_csv(path, ["class", *self.classes], ([name, *row] for name, row in rows))

    def write_per_class(self, path: StrPath) -> None:
        """Write a row for each class as CSV: images, correct, recall and precision.

        Raises:
            PocketuneError: The file cannot be written.
        """
        _write_csv(
            path,
            ["class", "images", "correct", "recall", "precision"],
            ([c.name, c.images, c.correct, c.recall, c.precision] for c in self.per_class),
        )


@dataclass(frozen=True)
class AttributeResult:
    """One attribute over all photos.

    Attributes:
        name: The attribute.
        images: Photos, with it or without.
        present: Photos that have it.
        predicted: Photos that were taken to have it.
        found: Photos that have it and were taken to.
    """

    name: str
    images: int
    present: int
    predicted: int
    found: int

    @property
    def accuracy(self) -> float:
        """Share of photos where it was told right whether they have it."""
        wrong = self.present + self.predicted - 2 * self.found
        return _share(self.images - wrong, self.images)

    @property
    def recall(self) -> float:
        """Share of the photos with it that were taken to have it; nan without such photos."""
        return _share(self.found, self.present)

    @property
    def precision(self) -> float:
        """Share of the photos taken to have it that do; nan where none was."""
        return _share(self.found, self.predicted)


@dataclass(frozen=True, eq=False)
class AttributeEvaluation:
    """What an evaluation of a model that tells attributes counted.

    Attributes:
        attributes: Their names.
        counts: int64 (attributes, 2, 2), for each attribute photos by whether they have it (row)
            and whether they were taken to, which is a probability above a half (column).
        skipped: Files that were left out, with the reason.
    """

    attributes: tuple[str, ...]
    counts: NDArray[np.int64]
    skipped: tuple[Skipped, ...] = ()

    @property
    def images(self) -> int:
        """Photos evaluated."""
        return int(self.counts[0].sum())

    @property
    def accuracy(self) -> float:
        """Mean over the attributes of their accuracy."""
        return _share(int(self.counts.trace(axis1=1, axis2=2).sum()), int(self.counts.sum()))

    @property
    def per_attribute(self) -> tuple[AttributeResult, ...]:
        """The same by attribute, in their order."""
        return tuple(
            AttributeResult(
                name,
                images=int(table.sum()),
                present=int(table[1].sum()),
                predicted=int(table[:, 1].sum()),
                found=int(table[1, 1]),
            )
            for name, table in zip(self.attributes, self.counts, strict=True)
        )

    def __str__(self) -> str:
        width = max(map(len, self.attributes))
        first = (
            f"mean accuracy {self.accuracy:.1%} of {len(self.attributes)} attributes of "
            f"{self.images} photos"
        )
        return "\n".join(
            [first, *(f"  {a.name:<{width}}  {a.accuracy:6.1%}" for a in self.per_attribute)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; shares of nothing are None."""
        attributes = [
            {
                "attribute": a.name,
                "present": a.present,
                "accuracy": a.accuracy,
                "recall": _known(a.recall),
                "precision": _known(a.precision),
            }
            for a in self.per_attribute
        ]
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "attributes": attributes,
            "skipped": _reasons(self.skipped),
        }

    def write_per_class(self, path: StrPath) -> None:
        """Write a row for each attribute as CSV: images, present, accuracy, recall and precision.

        Raises:
            PocketuneError: The file cannot be written.
        """
        _write_csv(
            path,
            ["attribute", "images", "present", "accuracy", "recall", "precision"],
            (
                [a.name, a.images, a.present, a.accuracy, a.recall, a.precision]
                for a in self.per_attribute
            ),
        )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _known(share: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(share) else share


def _reasons(files: Iterable[Skipped]) -> list[dict[str, str]]:
    return [{"image": file.name, "reason": file.reason} for file in files]


def _write_csv(
    path: StrPath, header: Sequence[str], rows: Iterable[Sequence[str | int | float]]
) -> None:
    with writing(path), Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
