"""Numbers of an image, from a CSV: the device half of a task that is not in the package.

This file and `tests/objectives/regression.py` are all that a new task takes. In the package they
would lie in `tasks/` and `objectives/`, and the two `__init__.py` would import them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray
from pocketune.errors import PocketuneError
from pocketune.files import Skipped
from pocketune.tasks import Evaluation, Labels, Prediction, Score, Seen, Task, register_task
from pocketune.tasks.base import CLASSES, RowReader
from pocketune.tasks.results import Values, reasons


@register_task
@dataclass(frozen=True)
class Regression(Task):
    """How large are the quantities that an image shows? `classes` are their names."""

    name = "regression"
    noun, singular = "quantities", "quantity"
    table = "file and a column for each quantity"
    label_dims = (CLASSES,)
    label_type = np.float32
    metric_name = "error"
    metric_style = ".3f"
    step_metrics = ("absolute_error",)

    @classmethod
    def columns(cls, titles: Sequence[str], free: Sequence[int], table: str) -> RowReader | None:
        return _NumberReader(titles, free, table) if free else None

    @classmethod
    def find_classes(cls, labels: Iterable[Hashable], titles: tuple[str, ...]) -> tuple[str, ...]:
        return titles

    def encode(
        self, labels: Sequence[Hashable], titles: tuple[str, ...], where: str, *, complete: bool
    ) -> Labels:
        """A row (n, quantities) for each image, float32."""
        if missing := [name for name in self.classes if name not in titles]:
            raise PocketuneError(f"{where} has no column for the quantity {missing[0]!r}")
        return np.array(labels, np.float32)[:, [titles.index(name) for name in self.classes]]

    def targets(self, labels: Labels) -> FloatArray:
        """The numbers themselves."""
        return labels

    def losses(self, outputs: FloatArray, labels: Labels) -> Values:
        """The mean (N,) over the quantities of the squared errors."""
        squares: Values = np.square(outputs.astype(np.float64) - labels).mean(axis=1)
        return squares

    def marks(self, outputs: FloatArray, labels: Labels) -> NDArray[np.float64]:
        """The absolute error of each quantity (N, quantities)."""
        return np.abs(outputs.astype(np.float64) - labels)

    def is_better(self, score: Score, than: Score) -> bool:
        """A smaller error is better."""
        return (score.value, score.loss) < (than.value, than.loss)

    def evaluate(self, batches: Iterable[tuple[FloatArray, Labels]]) -> RegressionEvaluation:
        metric = self.metric()
        for outputs, labels in batches:
            metric.update(outputs, labels)
        return RegressionEvaluation(metric.score.value, metric.images)

    def predict(
        self, name: str, output: FloatArray, top: int | None, seen: Seen | None = None
    ) -> Numbers:
        return Numbers(name, dict(zip(self.classes, output.tolist(), strict=True)))


class _NumberReader:
    def __init__(self, titles: Sequence[str], free: Sequence[int], table: str) -> None:
        self.titles = tuple(titles[position] for position in free)
        self._free, self._table = free, table

    def __call__(self, row: Sequence[str], line: int) -> tuple[float, ...]:
        try:
            return tuple(float(row[position]) for position in self._free)
        except (ValueError, IndexError):
            raise PocketuneError(f"{self._table} lacks a number in line {line}") from None


@dataclass(frozen=True)
class Numbers(Prediction):
    name: str
    values: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {"image": self.name, **self.values}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3f}" for name, value in self.values.items())


@dataclass(frozen=True)
class RegressionEvaluation(Evaluation):
    error: float
    count: int
    skipped: tuple[Skipped, ...] = ()

    @property
    def images(self) -> int:
        return self.count

    @property
    def value(self) -> float:
        return self.error

    def to_dict(self) -> dict[str, Any]:
        return {"images": self.images, "error": self.error, "skipped": reasons(self.skipped)}

    def __str__(self) -> str:
        return f"mean error {self.error:.3f} of {self.images} photos"
