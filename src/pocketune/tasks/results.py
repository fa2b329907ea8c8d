"""Results: scores during training, predictions of photos, and evaluations."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pocketune.errors import PocketuneError
from pocketune.files import Skipped, make_folder_of, replacing
from pocketune.notebook import Readable

if TYPE_CHECKING:
    from pocketune.arrays import FloatArray, StrPath
    from pocketune.notebook import Printer
    from pocketune.tasks.base import Task

Labels = NDArray[Any]
"""Labels as the task encodes them, one along the first axis for each image."""
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """How well images are predicted: the mean loss and the task's metric.

    >>> str(Score("accuracy", 0.931, loss=0.25))
    'accuracy 93.1%'

    Attributes:
        name: Name of the metric.
        value: Value of the metric.
        loss: Mean loss of the images.
        style: Format specification of the value.
    """

    name: str
    value: float
    loss: float
    style: str = ".1%"

    def __str__(self) -> str:
        return f"{self.name} {self.value:{self.style}}"

    def to_dict(self, prefix: str = "") -> dict[str, float]:
        """Loss and metric by name; each name begins with `prefix`."""
        return {f"{prefix}loss": self.loss, f"{prefix}{self.name}": self.value}


class Metric(Protocol):
    """Accumulates the score of batches."""

    images: int

    def update(self, outputs: FloatArray, labels: Labels) -> None:
        """Add a batch: the network's outputs (N, ...) and the labels (N, ...)."""
        ...

    @property
    def score(self) -> Score:
        """The score of all batches so far; nan before the first."""
        ...


class Prediction(Readable, ABC):
    """A model's prediction for one image.

    Attributes:
        name: The image's file.
    """

    name: str

    @property
    def class_map(self) -> NDArray[np.uint8] | None:
        """The class of each pixel of the upright image (height, width); None for a whole image."""
        return None

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""

    @abstractmethod
    def __str__(self) -> str:
        """A line for the terminal, without the image's name."""

    def _repr_pretty_(self, printer: Printer, _cycle: bool) -> None:
        """What notebooks show, also of each prediction in a list."""
        printer.text(f"{self.name}: {self}" if self.name else str(self))


class Verdict(NamedTuple):
    """What a label says about an image and what a model says, in words."""

    truth: str
    guess: str


@dataclass(frozen=True)
class ClassResult:
    """The results for one class or attribute over all photos.

    Attributes:
        name: The class.
        present: Photos that show it, by their labels.
        predicted: Photos that were predicted to show it.
        found: Photos that show it and were predicted to.
    """

    name: str
    present: int
    predicted: int
    found: int

    @property
    def recall(self) -> float:
        """Fraction of the photos that show it that were predicted to; nan without any."""
        return share(self.found, self.present)

    @property
    def precision(self) -> float:
        """Fraction of the photos predicted to show it that do; nan without any."""
        return share(self.found, self.predicted)


def percentage(value: float) -> str:
    """Six characters for a fraction; "none" if it is nan."""
    return f"{'none':>6}" if math.isnan(value) else f"{value:6.1%}"


class Table(NamedTuple):
    """Results with a row for each class or attribute."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]


class Confusions(NamedTuple):
    """How often each class was taken for each.

    A matrix of thousands of classes would take gigabytes; few of its cells are not 0.

    Attributes:
        classes: Names of the classes.
        pairs: int64 (P, 3), a class, a predicted class and how many were, sorted by both.
    """

    classes: Sequence[str]
    pairs: NDArray[np.int64]

    def rows(self) -> Iterator[list[str | int]]:
        """The rows of the matrix, each behind the name of its class."""
        truth, guess, count = self.pairs.T
        starts = np.searchsorted(truth, np.arange(len(self.classes) + 1))
        for name, start, end in zip(self.classes, starts, starts[1:], strict=False):
            row = np.zeros(len(self.classes), np.int64)
            row[guess[start:end]] = count[start:end]
            yield [name, *row.tolist()]


E = TypeVar("E", bound="Evaluation")


class Evaluation(Readable, ABC):
    """How well a model predicts labeled photos.

    Attributes:
        skipped: Files that were skipped, with the reason.
    """

    skipped: tuple[Skipped, ...]

    unit: ClassVar[str] = "photo"
    """What the confusion matrix counts."""

    def with_skipped(self: E, skipped: tuple[Skipped, ...]) -> E:
        """The same evaluation, with the files that were skipped."""
        return replace(self, skipped=skipped)  # type: ignore[type-var]

    @property
    @abstractmethod
    def images(self) -> int:
        """Number of evaluated photos."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The task's metric; nan without photos."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; a fraction of nothing is None."""

    @abstractmethod
    def __str__(self) -> str:
        """The main figures for the terminal."""

    @property
    def per_class_table(self) -> Table | None:
        """The results for each class; None for a task without classes."""
        return None

    @property
    def confusions(self) -> Confusions | None:
        """How often each class was taken for each; None for a task without classes."""
        return None

    def write_confusion(self, path: StrPath) -> None:
        """Write the confusion matrix as CSV: a row per class, a column per predicted class.

        Raises:
            PocketuneError: The task has none, or the file cannot be written.
        """
        found = self.require_confusions()
        write_csv(path, ("class", *found.classes), found.rows())

    def write_per_class(self, path: StrPath) -> None:
        """Write a row of results for each class or attribute as CSV.

        Raises:
            PocketuneError: The task has none, or the file cannot be written.
        """
        table = self.require_per_class()
        write_csv(path, table.titles, table.rows)

    def require_confusions(self) -> Confusions:
        """The confusions.

        Raises:
            PocketuneError: The task has none.
        """
        if self.confusions is None:
            raise PocketuneError(
                "this model predicts no single class, so it has no confusion matrix"
            )
        return self.confusions

    def require_per_class(self) -> Table:
        """The results for each class or attribute.

        Raises:
            PocketuneError: The task has none.
        """
        if self.per_class_table is None:
            raise PocketuneError("this model has no figures by class")
        return self.per_class_table


class Mean:
    """The mean of a task's losses and marks over all images."""

    def __init__(self, task: Task) -> None:
        self.images = 0
        self._task = task
        self._loss = 0.0
        self._sum, self._count = 0.0, 0

    def update(self, outputs: FloatArray, labels: Labels) -> None:
        """See `Metric`."""
        self._loss += float(self._task.losses(outputs, labels).sum())
        marks = self._task.marks(outputs, labels)
        self._sum += marks.sum().item()
        self._count += marks.size
        self.images += len(labels)

    @property
    def score(self) -> Score:
        """See `Metric`."""
        return self._task.score(share(self._sum, self._count), share(self._loss, self.images))


def share(part: float, whole: float) -> float:
    """`part / whole`; nan if `whole` is 0."""
    return part / whole if whole else float("nan")


def known(value: float) -> float | None:
    """The value; None for nan, which JSON does not have."""
    return None if math.isnan(value) else value


def reasons(files: Iterable[Skipped]) -> list[dict[str, str]]:
    """Files that were skipped, for JSON."""
    return [{"image": file.name, "reason": file.reason} for file in files]


def write_csv(
    path: StrPath, header: Sequence[str], rows: Iterable[Sequence[str | int | float]]
) -> None:
    """Write a table, and the folder that it is in.

    Raises:
        PocketuneError: The file cannot be written; what was there is unchanged.
    """
    path = Path(path)
    make_folder_of(path)
    with replacing(path) as place, place.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
