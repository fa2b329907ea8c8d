"""A row of a comparison's tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketune.comparison.cell import Cell, Part

if TYPE_CHECKING:
    from pocketune.device.train.record import RunRecord


@dataclass(frozen=True)
class Row:
    """The runs of a model and a method on a set of photos, which differ in their seed only.

    Attributes:
        photos: Name of the set of photos.
        model: Name of the network or kit.
        method: Name of the method.
        part: The photos that the scores are of.
        images: Number of these photos.
        metric: Name of the metric.
        style: Format specification of the metric.
        scores: The scores of the finished runs, by seed.
        records: The records of the finished runs.
        failed: Number of runs that failed.
    """

    photos: str
    model: str
    method: str
    part: Part
    images: int
    metric: str
    style: str
    scores: tuple[float, ...]
    records: tuple[RunRecord, ...]
    failed: int

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Row:
        """The row of one or more cells that differ in their seed only."""
        first = next((cell for cell in cells if cell.score is not None), cells[0])
        return cls(
            photos=first.photos,
            model=first.model,
            method=first.method,
            part=first.part,
            images=first.images,
            metric=first.metric,
            style=first.style,
            scores=tuple(cell.score for cell in cells if cell.score is not None),
            records=tuple(cell.record for cell in cells if cell.record is not None),
            failed=sum(cell.error is not None for cell in cells),
        )

    @property
    def record(self) -> RunRecord | None:
        """The first record, for what all runs have in common; None without a finished run."""
        return self.records[0] if self.records else None

    @property
    def runs(self) -> str:
        """The number of finished runs, and of how many if some failed."""
        done = len(self.scores)
        return f"{done} of {done + self.failed}" if self.failed else str(done)

    @property
    def mean(self) -> float | None:
        """Mean score over the seeds; None without a finished run."""
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the scores (n - 1); None for fewer than two runs."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @property
    def improved(self) -> int | None:
        """Number of runs that became better than their start; None if no run tells.

        The validation photos judge. Without them, only a run without steps is known to be its
        start.
        """
        judged = [each for each in self.records if each.best is not None or not each.best_step]
        return sum(each.best_step > 0 for each in judged) if judged else None

    @property
    def peak_memory(self) -> int | None:
        """The largest peak resident bytes of a run."""
        return max((each.peak_memory for each in self.records), default=None)

    @property
    def step_seconds(self) -> float | None:
        """Median of the runs' median seconds of a step; None without steps."""
        known = [each.step_seconds for each in self.records if each.step_seconds is not None]
        return statistics.median(known) if known else None

    @property
    def seconds(self) -> float | None:
        """Median wall-clock seconds of a run."""
        return statistics.median(each.seconds for each in self.records) if self.records else None
