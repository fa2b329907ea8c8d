"""The overlap of predicted and true classes, and what it is reported as."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.errors import counted
from pocketune.files import Skipped, shown
from pocketune.tasks.maps import ClassMap, compare, count_values
from pocketune.tasks.results import (
    ClassResult,
    Confusions,
    Evaluation,
    Labels,
    Prediction,
    Score,
    Table,
    known,
    reasons,
    share,
)

if TYPE_CHECKING:
    from pocketune.tasks.base import Task

_NAMED = 8
"""Classes that do not occur and are named."""


class Overlap:
    """The mean IoU from the pixels of all images together; see `Metric`.

    Attributes:
        confusion: int64 (classes, classes), pixels by class (row) and predicted class (column).
        images: Number of images.
    """

    def __init__(self, task: Task) -> None:
        classes = len(task.classes)
        self.images = 0
        self.confusion = np.zeros((classes, classes), np.int64)
        self._task = task
        self._loss = 0.0

    def update(self, outputs: FloatArray, labels: Labels) -> None:
        """Add outputs (N, classes, h, w), and a `Truth` for each."""
        for output, label in zip(outputs, labels, strict=True):
            found = compare(output, label)
            self.confusion += found.confusion
            self._loss += found.loss
            self.images += 1

    @property
    def score(self) -> Score:
        """Mean IoU, and the mean cross-entropy of all pixels that count."""
        found = mean(each.iou for each in results(self._task.classes, self.confusion))
        return self._task.score(found, share(self._loss, int(self.confusion.sum())))


@dataclass(frozen=True)
class PixelResult(ClassResult):
    """The results for one class, in pixels instead of photos."""

    @property
    def iou(self) -> float:
        """Intersection over union; nan if the class does not occur.

        A class that is predicted and does not occur has no IoU: its pixels are missing from the
        other classes.
        """
        union = self.present + self.predicted - self.found
        return share(self.found, union) if self.present else float("nan")

    @property
    def accuracy(self) -> float:
        """Fraction of its pixels that were found, as it is called here; nan without any."""
        return self.recall


def results(classes: Sequence[str], confusion: NDArray[np.int64]) -> tuple[PixelResult, ...]:
    """The results for each class, in order."""
    present, predicted = confusion.sum(axis=1).tolist(), confusion.sum(axis=0).tolist()
    return tuple(map(PixelResult, classes, present, predicted, confusion.diagonal().tolist()))


def mean(values: Iterable[float]) -> float:
    """The mean of the values that are not nan; nan without any."""
    present = [value for value in values if not math.isnan(value)]
    return share(sum(present), len(present))


@dataclass(frozen=True, eq=False)
class SegmentationEvaluation(Evaluation):
    """How well a model predicts the class of each pixel.

    Attributes:
        classes: Names of the classes.
        confusion: int64 (classes, classes), the number of pixels of all photos together by their
            class (row) and their predicted class (column), without ignored pixels.
        count: Number of photos.
        skipped: Files that were skipped, with the reason.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    count: int
    skipped: tuple[Skipped, ...] = ()

    unit = "pixel"

    @property
    def images(self) -> int:
        """Number of evaluated photos."""
        return self.count

    @property
    def value(self) -> float:
        """See `Evaluation`: the mean IoU."""
        return self.miou

    @property
    def miou(self) -> float:
        """Mean over the classes that occur of intersection over union."""
        return mean(each.iou for each in self.per_class)

    @property
    def macc(self) -> float:
        """Mean over the classes that occur of the share of their pixels that were found."""
        return mean(each.accuracy for each in self.per_class)

    @property
    def pixel_accuracy(self) -> float:
        """Share of all pixels that were predicted correctly."""
        return share(int(self.confusion.trace()), int(self.confusion.sum()))

    @property
    def per_class(self) -> tuple[PixelResult, ...]:
        """The results for each class, in order."""
        return results(self.classes, self.confusion)

    @property
    def absent(self) -> tuple[str, ...]:
        """Names of the classes that do not occur, which the means leave out."""
        return tuple(each.name for each in self.per_class if not each.present)

    def __str__(self) -> str:
        width = max(len(name) for name in ("class", *self.classes))
        lines = [
            f"mIoU {self.miou:.1%}, mAcc {self.macc:.1%}, pixel accuracy {self.pixel_accuracy:.1%} "
            f"of {counted(self.images, 'photo')}; ignored pixels are left out"
        ]
        lines.append(f"  {'class':<{width}}  {'IoU':>6}")
        lines += [
            f"  {each.name:<{width}}  {each.iou:6.1%}" for each in self.per_class if each.present
        ]
        if absent := self.absent:
            named = ", ".join(absent[:_NAMED]) + ", ..." * (len(absent) > _NAMED)
            one = len(absent) == 1
            lines.append(
                f"{'1 class does' if one else f'{len(absent)} classes do'} not occur in these "
                f"photos and {'is' if one else 'are'} left out of the means: {shown(named, 200)}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """See `Evaluation`."""
        classes = [
            {
                "class": each.name,
                "pixels": each.present,
                "iou": known(each.iou),
                "accuracy": known(each.accuracy),
                "precision": known(each.precision),
            }
            for each in self.per_class
        ]
        return {
            "images": self.images,
            "miou": known(self.miou),
            "macc": known(self.macc),
            "pixel_accuracy": known(self.pixel_accuracy),
            "absent": list(self.absent),
            "classes": classes,
            "confusion": self.confusion.tolist(),
            "skipped": reasons(self.skipped),
        }

    @property
    def confusions(self) -> Confusions:
        """See `Evaluation`; it counts pixels."""
        found = np.argwhere(self.confusion)
        return Confusions(self.classes, np.c_[found, self.confusion[tuple(found.T)]])

    @property
    def per_class_table(self) -> Table:
        """For each class: pixels, IoU, accuracy and precision."""
        return Table(
            ("class", "pixels", "IoU", "accuracy", "precision"),
            tuple((c.name, c.present, c.iou, c.accuracy, c.precision) for c in self.per_class),
        )


@dataclass(frozen=True, eq=False)
class SegmentationPrediction(Prediction):
    """The class of each pixel of one image.

    Attributes:
        name: The image's file.
        classes: Names of the classes.
        mask: uint8 (height, width), the class of each pixel of the upright image.
        top: Number of classes to name; None for all that occur.
    """

    name: str
    classes: tuple[str, ...]
    mask: ClassMap
    top: int | None = None

    @property
    def class_map(self) -> ClassMap:
        """See `Prediction`."""
        return self.mask

    @property
    def shares(self) -> tuple[tuple[str, float], ...]:
        """Classes with their share of the pixels, the largest first."""
        pixels = count_values(self.mask)
        best = [i for i in np.argsort(-pixels, kind="stable").tolist() if pixels[i]]
        return tuple((self.classes[i], float(pixels[i]) / self.mask.size) for i in best[: self.top])

    def to_dict(self) -> dict[str, Any]:
        """See `Prediction`."""
        classes = [{"class": name, "share": each} for name, each in self.shares]
        return {"image": self.name, "classes": classes}

    def __str__(self) -> str:
        return ", ".join(f"{name} {each:.1%}" for name, each in self.shares)
