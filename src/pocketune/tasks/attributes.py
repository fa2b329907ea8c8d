"""Any number of attributes for each image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.errors import PocketuneError, counted
from pocketune.files import Skipped, shown
from pocketune.tasks.base import CLASSES, RowReader, Task, as_label, no_value, register_task
from pocketune.tasks.classification import Classification, Guess, check_smoothing
from pocketune.tasks.results import (
    ClassResult,
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
from pocketune.tasks.segmentation import Segmentation
from pocketune.tasks.views import Seen

CODES = {
    **dict.fromkeys(("0", "0.0", "no", "No", "NO", "false", "False", "FALSE"), 0),
    **dict.fromkeys(("1", "1.0", "yes", "Yes", "YES", "true", "True", "TRUE"), 1),
    "-1": 255,
}
"""What a table may say of an attribute, and the byte that it is read as."""


@register_task
@dataclass(frozen=True)
class Attributes(Task):
    """Predict which attributes an image has; `classes` are their names.

    Attributes:
        label_smoothing: Fraction of an attribute's target that is spread evenly over its presence
            and absence: the target is half of it away from 0 or 1.
    """

    label_smoothing: float = 0.0

    name = "attributes"
    noun, singular = "attributes", "attribute"
    table = "file and a column for each attribute"
    label_dims = (CLASSES,)
    label_type = np.uint8
    activation = "sigmoid"
    metric_name = "accuracy"
    step_metrics = ("correct",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_smoothing(self.label_smoothing)

    @classmethod
    def columns(cls, titles: Sequence[str], free: Sequence[int], table: str) -> RowReader | None:
        """See `Task`; every free column is an attribute, unless one is a label or a mask."""
        others = (Classification, Segmentation)
        if not free or any(task.columns(titles, free, table) for task in others):
            return None
        return _AttributeReader(_positions(titles, free, table), len(titles), table)

    @classmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        """See `Task`; the classes are in the order of the columns."""
        return titles

    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """A row (n, attributes) for each image, uint8; see `Task`."""
        missing = [name for name in self.classes if name not in titles]
        if missing:
            raise PocketuneError(
                f"{where} has no column for the attribute {shown(missing[0])!r} that was trained; "
                f"its columns are {shown(', '.join(titles), 200)}"
            )
        rows = np.frombuffer(b"".join(map(_bytes, labels)), np.uint8)
        columns = [titles.index(name) for name in self.classes]
        return rows.reshape(len(labels), -1)[:, columns]

    def targets(self, labels: Labels) -> FloatArray:
        """See `Task`; 1 for an attribute that is present and -1 otherwise."""
        return 2 * labels.astype(np.float32) - 1

    def check_training(self, training: Labels, validation: Labels, where: str) -> None:
        """See `Task`; the training images must differ in an attribute."""
        if (training == training[0]).all():
            raise PocketuneError(
                f"the training images in {where} all have the same attributes; add images that "
                "differ in at least one"
            )

    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """The binary cross-entropy of each image (N,), the mean over its attributes, in float64."""
        exact = outputs.astype(np.float64)
        mean: Values = (np.logaddexp(0, exact) - labels * exact).mean(axis=1)
        return mean

    def marks(self, outputs: FloatArray, labels: Labels) -> NDArray[np.bool_]:
        """Whether each attribute (N, A) is predicted correctly, with a threshold of 0.5."""
        right: NDArray[np.bool_] = (outputs > 0) == (labels > 0)
        return right

    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> AttributeEvaluation:
        """See `Task`."""
        counts = np.zeros((len(self.classes), 2, 2), np.int64)
        numbers = np.arange(len(self.classes))
        for outputs, labels in batches:
            np.add.at(counts, (numbers, labels, (outputs > 0).astype(np.intp)), 1)
        return AttributeEvaluation(self.classes, counts)

    def predict(
        self, name: str, output: FloatArray, top: int | None, seen: Seen | None = None
    ) -> AttributePrediction:
        """See `Task`; by default all attributes."""
        probabilities = sigmoid(output)
        best = np.argsort(-output, kind="stable")[:top]
        guesses = (Guess(self.classes[i], float(probabilities[i])) for i in best)
        return AttributePrediction(name, tuple(guesses), chosen=top is not None)

    def counts(self, labels: Labels) -> NDArray[np.int64]:
        """Images that have each attribute."""
        present: NDArray[np.int64] = labels.sum(axis=0, dtype=np.int64)
        return present

    def confidences(self, outputs: FloatArray) -> Values:
        """The probability (N, A) of each attribute's more likely answer, presence or absence."""
        return sigmoid(np.abs(outputs))

    def answers(self, labels: Labels) -> NDArray[np.int64]:
        """A question for each attribute (N, A): 1 where an image has it."""
        return labels.astype(np.int64)

    def answer(self, question: int, value: int) -> str:
        """The attribute, or "not" and the attribute."""
        return self.classes[question] if value else f"not {self.classes[question]}"

    def verdict(self, output: FloatArray, label: Labels, seen: Seen | None = None) -> Verdict:
        """The attributes that are predicted wrongly, the surest first; all if none is wrong."""
        wrong = (output > 0) != (label > 0)
        order = np.argsort(-np.abs(output), kind="stable")
        chosen = [int(i) for i in order if wrong[i]] or order.tolist()
        sure = self.confidences(output)
        truth = ", ".join(self.answer(i, int(label[i] > 0)) for i in chosen)
        guess = ", ".join(f"{self.answer(i, output[i] > 0)} ({sure[i]:.0%})" for i in chosen)
        return Verdict(truth, guess)


def sigmoid(logits: FloatArray) -> Values:
    """Probabilities of attributes, in float64 and without overflow."""
    result: Values = np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
    return result


def _positions(titles: Sequence[str], free: Sequence[int], table: str) -> dict[str, int]:
    """Positions of the attributes by name; each name must occur once."""
    positions: dict[str, int] = {}
    for position in free:
        title = as_label(titles[position])
        if not title:
            raise PocketuneError(
                f"{shown(table)} has no title over column {position + 1}; name the attribute or "
                "remove the column"
            )
        if title in positions:
            raise PocketuneError(f"{shown(table)} has two columns {shown(title)!r}; keep one")
        positions[title] = position
    return positions


class _AttributeReader:
    """Reads each attribute as a byte, 1 or 0; see `RowReader`.

    A table may write 0, no, false or -1 for an absent attribute. A table that has -1 and another is
    refused, because one of them might mean something else.
    """

    _ABSENT = bytes.maketrans(bytes([CODES["-1"]]), bytes([CODES["0"]]))

    def __init__(self, positions: Mapping[str, int], width: int, table: str) -> None:
        self.titles = tuple(positions)
        self._positions, self._width, self._table = positions, width, table
        self._seen: set[int] = set()

    def __call__(self, row: Sequence[str], line: int) -> bytes:
        if any(row[self._width :]):
            raise PocketuneError(
                f"{shown(self._table)} has more values than titles in line {line}; name every "
                "column, in order"
            )
        try:
            codes = bytes(CODES[row[position]] for position in self._positions.values())
        except KeyError:
            raise self._odd(row, line) from None
        self._seen.update(codes)
        if self._seen >= {CODES["0"], CODES["-1"]}:
            raise PocketuneError(
                f"{shown(self._table)} has both 0 and -1 for absent attributes; write one of them "
                "throughout"
            )
        return codes.translate(self._ABSENT)

    def _odd(self, row: Sequence[str], line: int) -> PocketuneError:
        """The error about the first value in the row that is not in `CODES`."""
        cells = {title: row[position] for title, position in self._positions.items()}
        title = next(title for title, value in cells.items() if value not in CODES)
        if not cells[title]:
            return no_value(f"value for {shown(title)!r}", self._table, line)
        return PocketuneError(
            f"{shown(self._table)} has {shown(cells[title])!r} for {shown(title)!r} in line "
            f"{line}: write 1 for an attribute that an image has and 0 or -1 otherwise; for "
            "classes, name the columns file and label"
        )


def _bytes(label: Hashable) -> bytes:
    assert isinstance(label, bytes)  # from _AttributeReader
    return label


@dataclass(frozen=True)
class AttributePrediction(Prediction):
    """The attributes of one image, most likely first.

    Attributes:
        chosen: Whether the user chose how many to name.
    """

    name: str
    guesses: tuple[Guess, ...]
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """See `Prediction`."""
        attributes = [
            {
                "attribute": g.label,
                "probability": g.probability,
                "present": g.probability > 0.5,
            }
            for g in self.guesses
        ]
        return {"image": self.name, "attributes": attributes}

    def __str__(self) -> str:
        """The attributes above 50 %, or as many as the user chose."""
        named = [g for g in self.guesses if self.chosen or g.probability > 0.5]
        return ", ".join(map(str, named)) or "none of the attributes"


@dataclass(frozen=True)
class AttributeResult(ClassResult):
    """The results for one attribute over all photos.

    Attributes:
        images: Number of photos.
    """

    images: int

    @property
    def accuracy(self) -> float:
        """Fraction of the photos for which the attribute was predicted correctly."""
        wrong = self.present + self.predicted - 2 * self.found
        return share(self.images - wrong, self.images)


@dataclass(frozen=True, eq=False)
class AttributeEvaluation(Evaluation):
    """How well a model predicts attributes.

    Attributes:
        attributes: Names of the attributes.
        counts: int64 (attributes, 2, 2). For each attribute, the number of photos by whether they
            have it (row) and whether its probability is above 0.5 (column).
        skipped: Files that were skipped, with the reason.
    """

    attributes: tuple[str, ...]
    counts: NDArray[np.int64]
    skipped: tuple[Skipped, ...] = ()

    @property
    def images(self) -> int:
        """Number of evaluated photos."""
        return int(self.counts[0].sum())

    @property
    def value(self) -> float:
        """See `Evaluation`: the mean accuracy of the attributes."""
        return self.accuracy

    @property
    def accuracy(self) -> float:
        """Mean accuracy of the attributes."""
        return share(int(self.counts.trace(axis1=1, axis2=2).sum()), int(self.counts.sum()))

    @property
    def per_attribute(self) -> tuple[AttributeResult, ...]:
        """The results for each attribute, in order."""
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
            f"mean accuracy {self.accuracy:.1%} of {counted(len(self.attributes), 'attribute')} of "
            f"{counted(self.images, 'photo')}"
        )
        rows = (
            f"  {a.name:<{width}}  {a.accuracy:6.1%}  recall {percentage(a.recall)}  "
            f"precision {percentage(a.precision)}  {counted(a.present, 'photo')}"
            for a in self.per_attribute
        )
        return "\n".join([first, *rows])

    def to_dict(self) -> dict[str, Any]:
        """See `Evaluation`."""
        attributes = [
            {
                "attribute": a.name,
                "present": a.present,
                "accuracy": known(a.accuracy),
                "recall": known(a.recall),
                "precision": known(a.precision),
            }
            for a in self.per_attribute
        ]
        return {
            "images": self.images,
            "accuracy": known(self.accuracy),
            "attributes": attributes,
            "skipped": reasons(self.skipped),
        }

    @property
    def per_class_table(self) -> Table:
        """For each attribute: images, present, accuracy, recall and precision."""
        return Table(
            ("attribute", "images", "present", "accuracy", "recall", "precision"),
            tuple(
                (a.name, a.images, a.present, a.accuracy, a.recall, a.precision)
                for a in self.per_attribute
            ),
        )
