"""What a run has logged: the lines of `metrics.jsonl` as curves."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketune.files import ARCHIVE_DAMAGE, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pocketune.kit.packed import RunFile


@dataclass(frozen=True)
class Curve:
    """Values over training steps; nan where a value is not a number.

    Attributes:
        steps: Completed steps at each value.
        values: The values.
    """

    steps: tuple[float, ...]
    values: tuple[float, ...]

    def thinned(self, limit: int) -> Curve:
        """At most `limit` points, each the mean of as many neighbors."""
        if len(self.steps) <= limit:
            return self
        parts = zip(
            np.array_split(np.array(self.steps), limit),
            np.array_split(np.array(self.values), limit),
            strict=True,
        )
        means = [(float(steps.mean()), float(_mean(values))) for steps, values in parts]
        return Curve(*(tuple(column) for column in zip(*means, strict=True)))


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


@dataclass(frozen=True)
class Metrics:
    """The log of a run.

    Attributes:
        steps: The lines of training steps.
        epochs: The lines of validations: one for each epoch, and one before the first step if the
            start was validated.
        further: Whether the run began with the values of another run.
    """

    steps: tuple[dict[str, Any], ...]
    epochs: tuple[dict[str, Any], ...]
    further: bool = False

    @classmethod
    def read(cls, path: RunFile) -> Metrics:
        """Read a log; an incomplete last line, as of a killed run, is ignored.

        Raises:
            PocketuneError: The file cannot be read.
        """
        kinds: dict[str, list[dict[str, Any]]] = {"start": [], "step": [], "epoch": []}
        with reading(path, *ARCHIVE_DAMAGE), path.open("rb") as file:
            for line in file:
                try:
                    values = json.loads(line)
                except ValueError:
                    continue
                if isinstance(values, dict) and "step" in values:
                    kinds.setdefault(values.get("kind", ""), []).append(values)
        validated = (line for line in kinds["start"] if line.get("validation_loss") is not None)
        further = any(line.get("further") is True for line in kinds["start"])
        return cls(tuple(kinds["step"]), (*validated, *kinds["epoch"]), further)

    def of_steps(self, name: str) -> Curve:
        """A value of each step."""
        return _curve(self.steps, name)

    def of_epochs(self, name: str) -> Curve:
        """A value of each epoch; epochs without it are left out."""
        return _curve([line for line in self.epochs if line.get(name) is not None], name)


def _curve(lines: Sequence[dict[str, Any]], name: str) -> Curve:
    values = (line.get(name) for line in lines)
    known = (float(v) if isinstance(v, (int, float)) else math.nan for v in values)
    return Curve(tuple(float(line["step"]) for line in lines), tuple(known))
