"""One class for each image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.errors import PocketuneError, counted, printable
from pocketune.files import Skipped, shown
from pocketune.tasks.base import (
    TASKS,
    RowReader,
    Task,
    as_label,
    no_value,
    numbered,
    register_task,
)
from pocketune.tasks.results import (
    ClassResult,
    Confusions,
    Evaluation,
    Labels,
    Prediction,
    Table,
    Values,
    Verdict,
    known,
    percentage,
    reasons,
    share,
)
from pocketune.tasks.views import Seen

TOP = 5
SHOWN = 20
"""Classes of which an evaluation has a line in words."""
LISTED = 1000
"""Most classes of which JSON has the confusion matrix, a million numbers."""
_DIGITS = 20  # of a class that is a number
COLUMNS = ("label", "class")


@register_task
@dataclass(frozen=True)
class Classification(Task):
    """Predict the class of an image.

    Attributes:
        label_smoothing: Fraction of the target that is spread evenly over all classes, in [0, 1).
    """

    label_smoothing: float = 0.0

    name = "classification"
    table = "file and label"
    has_folders = True
    label_dims = ()
    label_type = np.int64
    activation = "softmax"
    metric_name = "accuracy"
    metric_is_share = True
    step_metrics = ("correct",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_smoothing(self.label_smoothing)

    @classmethod
    def columns(cls, titles: Sequence[str], free: Sequence[int], table: str) -> RowReader | None:
        """See `Task`."""
        positions = {titles[position].casefold(): position for position in reversed(free)}
        column = next((positions[title] for title in COLUMNS if title in positions), None)
        return None if column is None else _ClassReader(column, table)

    @classmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        """See `Task`; in numerical order if all names are integers, else alphabetical.

        Integers of many digits are names like others.
        """
        unique = sorted({str(label) for label in labels})
        if all(label.isdecimal() and len(label) < _DIGITS for label in unique):
            unique.sort(key=int)
        return tuple(unique)

    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """The position (n,) of each image's class, int64; see `Task`."""
        found = set(labels)
        if complete and (lost := [name for name in self.classes if name not in found]):
            raise PocketuneError(
                f"the class {shown(min(lost))!r} in {where} has no readable image; add images to "
                "it or remove it"
            )
        if strange := sorted(str(label) for label in found - set(self.classes)):
            raise PocketuneError(
                f"{where} has images of the class {shown(strange[0])!r}, which is not one of the "
                f"{len(self.classes)} classes trained: {shown(', '.join(self.classes), 200)}"
            )
        index = {name: position for position, name in enumerate(self.classes)}
        return np.array([index[str(label)] for label in labels], dtype=np.int64)

    def targets(self, labels: Labels) -> FloatArray:
        """See `Task`; 1 for the class and 0 for all others."""
        targets = np.zeros((len(labels), len(self.classes)), np.float32)
        targets[np.arange(len(labels)), labels] = 1
        return targets

    def strata(self, labels: Labels) -> NDArray[np.int64]:
        """See `Task`; the groups are the classes."""
        return labels

    def check_training(self, training: Labels, validation: Labels, where: str) -> None:
        """See `Task`; needs two training classes, and all classes of the validation."""
        trained = set(training.tolist())
        if len(trained) == 1:
            only = shown(self.classes[trained.pop()])
            raise PocketuneError(
                f"{where} has training images of one class only, {only!r}; add at least one other "
                "class"
            )
        if unseen := sorted(set(validation.tolist()) - trained):
            raise PocketuneError(
                f"the class {shown(self.classes[unseen[0]])!r} in {where} has validation images "
                "but no training images; add some or remove the class"
            )

    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """See `Task` and `cross_entropy`."""
        return cross_entropy(outputs, labels)

    def marks(self, outputs: FloatArray, labels: Labels) -> NDArray[np.bool_]:
        """Whether the largest logit of each image (N,) is that of its class."""
        right: NDArray[np.bool_] = outputs.argmax(axis=1) == labels
        return right

    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> ClassEvaluation:
        """See `Task`."""
        cells, among_top = [np.empty(0, np.int64)], 0
        for outputs, labels in batches:
            likeliest = np.argsort(-outputs, axis=1, kind="stable")[:, :TOP]
            cells.append(labels.astype(np.int64) * len(self.classes) + likeliest[:, 0])
            among_top += int((likeliest == labels[:, None]).sum())
        found, counts = np.unique(np.concatenate(cells), return_counts=True)
        pairs = np.stack([*np.divmod(found, len(self.classes)), counts], axis=1)
        return ClassEvaluation(self.classes, pairs, among_top)

    def predict(
        self, name: str, output: FloatArray, top: int | None, seen: Seen | None = None
    ) -> ClassPrediction:
        """See `Task`; by default the five most likely classes."""
        probabilities = softmax(output)
        best = np.argsort(-output, kind="stable")[: top or TOP]
        guesses = (Guess(self.classes[i], float(probabilities[i])) for i in best)
        return ClassPrediction(name, tuple(guesses))

    def counts(self, labels: Labels) -> NDArray[np.int64]:
        """See `Task`."""
        return np.bincount(labels, minlength=len(self.classes)).astype(np.int64)

    def confidences(self, outputs: FloatArray) -> Values:
        """The probability (N,) of each image's most likely class."""
        highest: Values = softmax(outputs).max(axis=1)
        return highest

    def answers(self, labels: Labels) -> NDArray[np.int64]:
        """One question (N, 1): the class."""
        classes: NDArray[np.int64] = labels[:, None].astype(np.int64)
        return classes

    def answer(self, question: int, value: int) -> str:
        """The name of a class."""
        return self.classes[value]

    def verdict(self, output: FloatArray, label: Labels, seen: Seen | None = None) -> Verdict:
        """The class and the most likely one, each with its probability."""
        probabilities = softmax(output)
        both = (int(label), int(output.argmax()))
        return Verdict(*(f"{self.classes[i]} ({probabilities[i]:.0%})" for i in both))


def cross_entropy(logits: NDArray[np.floating], labels: Labels) -> Values:
    """The loss (N,) of logits (N, classes) by label (N,), in float64 and without overflow."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    picked = np.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    loss: Values = np.log(np.exp(shifted).sum(axis=1)) - picked
    return loss


def softmax(logits: FloatArray) -> Values:
    """Probabilities that add up to 1 along the last axis, in float64 and without overflow."""
    shifted = logits.astype(np.float64)
    powers = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    result: Values = powers / powers.sum(axis=-1, keepdims=True)
    return result


def default_task(outputs: int, *, dense: bool = False) -> Task:
    """The task of a network without one: to tell apart that many numbered classes.

    Args:
        outputs: Number of classes.
        dense: Whether the network has an output for each pixel.
    """
    found = next(task for task in TASKS.values() if task.dense) if dense else Classification
    return found(numbered(outputs))


def check_smoothing(value: float) -> None:
    """Check that a label smoothing is in [0, 1).

    Raises:
        PocketuneError: It is not.
    """
    if not 0 <= value < 1:
        raise PocketuneError(f"label_smoothing={value} must lie in [0, 1)")


class _ClassReader:
    """Reads the labels in one column; see `RowReader`."""

    titles: tuple[str, ...] = ()

    def __init__(self, column: int, table: str) -> None:
        self._column, self._table = column, table

    def __call__(self, row: Sequence[str], line: int) -> str:
        value = row[self._column]
        if not value:
            raise no_value("label", self._table, line)
        return as_label(value)


@dataclass(frozen=True)
class Guess:
    """A class or an attribute, and its probability between 0 and 1."""

    label: str
    probability: float

    def __str__(self) -> str:
        return f"{self.label} {self.probability:.1%}"


@dataclass(frozen=True)
class ClassPrediction(Prediction):
    """The most likely classes of one image, most likely first."""

    name: str
    guesses: tuple[Guess, ...]

    def to_dict(self) -> dict[str, Any]:
        """See `Prediction`."""
        classes = [{"class": g.label, "probability": g.probability} for g in self.guesses]
        return {"image": self.name, "classes": classes}

    def __str__(self) -> str:
        return ", ".join(map(str, self.guesses))


@dataclass(frozen=True, eq=False)
class ClassEvaluation(Evaluation):
    """How well a model classifies photos.

    Attributes:
        classes: Names of the classes.
        pairs: int64 (P, 3), a class, a predicted class and the number of such photos, sorted.
        among_top5: Photos whose class is among the five most likely.
        skipped: Files that were skipped, with the reason.
    """

    classes: tuple[str, ...]
    pairs: NDArray[np.int64]
    among_top5: int
    skipped: tuple[Skipped, ...] = ()

    @property
    def images(self) -> int:
        """Number of evaluated photos."""
        return int(self.pairs[:, 2].sum())

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Photos (classes, classes) by their class (row) and their predicted class (column)."""
        matrix = np.zeros((len(self.classes),) * 2, np.int64)
        matrix[self.pairs[:, 0], self.pairs[:, 1]] = self.pairs[:, 2]
        return matrix

    @property
    def value(self) -> float:
        """See `Evaluation`: the accuracy, `top1`."""
        return self.top1

    @property
    def top1(self) -> float:
        """Fraction of the photos that were predicted correctly."""
        truth, guess, photos = self.pairs.T
        return share(int(photos[truth == guess].sum()), self.images)

    @property
    def balanced(self) -> float:
        """Balanced accuracy: the mean recall of the classes that have photos."""
        recalls = [each.recall for each in self.per_class if each.present]
        return share(sum(recalls), len(recalls))

    @property
    def top5(self) -> float:
        """Fraction of the photos whose class is among the five most likely."""
        return share(self.among_top5, self.images)

    @property
    def per_class(self) -> tuple[ClassResult, ...]:
        """The results for each class, in order."""
        truth, guess, photos = self.pairs.T
        present, predicted, found = np.zeros((3, len(self.classes)), np.int64)
        np.add.at(present, truth, photos)
        np.add.at(predicted, guess, photos)
        np.add.at(found, truth[truth == guess], photos[truth == guess])
        return tuple(
            map(ClassResult, self.classes, *(each.tolist() for each in (present, predicted, found)))
        )

    def __str__(self) -> str:
        figures = {"top-1": f"{self.top1:.1%}"}
        if len(self.classes) > TOP:
            figures["top-5"] = f"{self.top5:.1%}"
        if (balanced := f"{self.balanced:.1%}") != figures["top-1"]:
            figures["balanced"] = balanced
        told = ", ".join(f"{name} {value}" for name, value in figures.items())
        return "\n".join([f"{told} of {counted(self.images, 'photo')}", *self._rows()])

    def _rows(self) -> Iterator[str]:
        """A line for each class that has photos, those of the lowest recall first."""
        classes = sorted(
            (each for each in self.per_class if each.present),
            key=lambda each: (each.recall, each.precision),
        )
        worst = classes[:SHOWN]
        width = max((len(each.name) for each in worst), default=0)
        for each in worst:
            yield (
                f"  {printable(each.name):<{width}}  recall {percentage(each.recall)}  "
                f"precision {percentage(each.precision)}  {counted(each.present, 'photo')}"
            )
        if len(classes) > SHOWN:
            yield f"  and {len(classes) - SHOWN:,} more"

    def to_dict(self) -> dict[str, Any]:
        """See `Evaluation`."""
        classes = [
            {
                "class": c.name,
                "images": c.present,
                "correct": c.found,
                "recall": known(c.recall),
                "precision": known(c.precision),
            }
            for c in self.per_class
        ]
        return {
            "images": self.images,
            "top1": known(self.top1),
            "top5": known(self.top5),
            "balanced": known(self.balanced),
            "classes": classes,
            "confusion": self.confusion.tolist() if len(self.classes) <= LISTED else None,
            "skipped": reasons(self.skipped),
        }

    @property
    def confusions(self) -> Confusions:
        """See `Evaluation`."""
        return Confusions(self.classes, self.pairs)

    @property
    def per_class_table(self) -> Table:
        """For each class: images, correct, recall and precision."""
        return Table(
            ("class", "images", "correct", "recall", "precision"),
            tuple((c.name, c.present, c.found, c.recall, c.precision) for c in self.per_class),
        )
