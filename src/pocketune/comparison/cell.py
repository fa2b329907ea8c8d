"""One run of a comparison: where it stands in the tables, and its result."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pocketune.device.train.record import RunRecord
from pocketune.errors import PocketuneError
from pocketune.files import regular, replacing
from pocketune.schema import parse_object, read_object
from pocketune.tasks import Score, Task

Part = Literal["test", "validation"]
Place = tuple[str, str, str, int]
"""Photos, model, method and seed."""


def configuration(model: str, method: str) -> str:
    """A network or kit and a method in words; a kit may have the name of its method."""
    return model if model == method else f"{model}, {method}"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run of a comparison.

    Attributes:
        photos: Name of the set of photos.
        model: Name of the network or kit.
        method: Name of the method.
        seed: The seed of the run.
        key: Hash of everything that the result depends on.
        part: The photos that the score is of: `test`, or `validation` for a set without test
            photos, on which the best step was chosen.
        images: Number of these photos; 0 if the run failed.
        score: Value of the task's metric on these photos; None if the run failed.
        metric: Name of the metric.
        style: Format specification of the metric.
        record: The record of the run; None if it failed.
        error: Why the run failed, in one sentence; None if it did not.
    """

    photos: str
    model: str
    method: str
    seed: int
    key: str
    part: Part
    images: int = 0
    score: float | None = None
    metric: str = "score"
    style: str = ".3f"
    record: RunRecord | None = None
    error: str | None = None

    @property
    def place(self) -> Place:
        """Where the cell stands in the tables."""
        return self.photos, self.model, self.method, self.seed

    def at(self, place: Cell) -> Cell:
        """The same result, under the names of another cell."""
        return replace(self, photos=place.photos, model=place.model, method=place.method)

    def finished(self, value: float, images: int, task: Task, record: RunRecord) -> Cell:
        """The cell with the result of its run."""
        return replace(
            self,
            images=images,
            score=value,
            metric=task.metric_name,
            style=task.metric_style,
            record=record,
            error=None,
        )

    def failed(self, error: str) -> Cell:
        """The cell of a run that failed."""
        return replace(self, error=error)

    @property
    def name(self) -> str:
        """The place of the cell in words."""
        return f"{self.photos}, {configuration(self.model, self.method)}, seed {self.seed}"

    def __str__(self) -> str:
        if self.score is None:
            return f"{self.name}: {self.error}"
        return f"{self.name}: {Score(self.metric, self.score, 0.0, self.style)} ({self.part})"

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object, where: str) -> Cell:
        """A cell from the object of `to_dict`; `where` is its place, for messages.

        Raises:
            FieldError: A field is missing, unknown or of the wrong type.
        """
        return read_object(cls, data, where)

    def write(self, path: Path) -> None:
        """Replace a file, atomically."""
        with replacing(path) as file:
            file.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def find(cls, path: Path) -> Cell | None:
        """The finished cell in a file; None if there is none that this version can read."""
        try:
            cell = cls.from_dict(parse_object(regular(path).read_bytes(), str(path)), str(path))
        except (OSError, PocketuneError):
            return None
        return None if cell.error else cell
