"""A candidate in a plan: its cost, what was measured of it, and why it was dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pocketune.device.memory.sizes import format_size
from pocketune.notebook import Readable
from pocketune.planner.candidate import Candidate, Cost
from pocketune.tasks import Score

if TYPE_CHECKING:
    from pocketune.device.train.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a short run may be.

    Attributes:
        steps: Number of steps.
        most: Train and validate on at most so many photos each; None for all.
        seconds: Stop the process after this time; None for never.
        share: Share of the steps of the run that it is for; its warm-up is shorter by as much.
    """

    steps: int
    most: int | None = None
    seconds: float | None = None
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A short run of a candidate, in a process of its own.

    Attributes:
        steps: Completed steps; 0 for the classifier that is computed from the features alone.
        score: Best score on the validation photos; None without any.
        peak: Peak resident bytes of the process.
        step_seconds: Median seconds of a step, with the wait for its photos; 0 without steps.
        seconds: Wall-clock seconds of the process, from its start to its end.
        photos: Validation photos of the score.
    """

    steps: int
    score: Score | None
    peak: int
    step_seconds: float
    seconds: float
    photos: int

    @property
    def fixed_seconds(self) -> float:
        """The part of the seconds that is not steps: start, features, validation."""
        return max(0.0, self.seconds - self.steps * self.step_seconds)


@dataclass(frozen=True, kw_only=True)
class HeadScore:
    """The score of the classifier that is computed from frozen features, before any training.

    Attributes:
        score: Score on photos that the classifier was not computed from.
        seconds: Seconds that the features and the classifier took.
        photos: Photos that the score is of.
    """

    score: Score
    seconds: float
    photos: int


@dataclass(frozen=True, kw_only=True)
class Trial(Readable):
    """A candidate, and everything that the plan knows about it.

    Attributes:
        candidate: The candidate.
        cost: Its predicted cost; None if it was not predicted.
        heads: Scores of its group's frozen features, each of more photos than the one before.
        built_seconds: Seconds that building its kit took; None if there was no need yet.
        probes: Its short runs, in order; each longer than the one before.
        failed_seconds: Seconds of work that ended in an error; None if nothing failed.
        late_seconds: Seconds of a run that was stopped because it took too long; None without one.
        dropped: Why it is not the choice; None while it may be, and for the choice.
    """

    candidate: Candidate
    cost: Cost | None = None
    heads: tuple[HeadScore, ...] = ()
    built_seconds: float | None = None
    probes: tuple[Probe, ...] = ()
    failed_seconds: float | None = None
    late_seconds: float | None = None
    dropped: str | None = None

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.candidate.name

    def __str__(self) -> str:
        """A line for the candidate."""
        told = [str(self.score)] if self.score else []
        told += [format_size(self.memory)] if self.memory else []
        told += [f"{1000 * self.step_seconds:.0f} ms a step"] if self.step_seconds else []
        told += [self.dropped] if self.dropped else []
        return f"{self.name}: {', '.join(told)}" if told else self.name

    @property
    def head(self) -> HeadScore | None:
        """The score of its group's frozen features on most photos; None without any."""
        return self.heads[-1] if self.heads else None

    @property
    def memory(self) -> int:
        """Peak bytes: the largest that was measured, else the predicted one; 0 if unknown."""
        measured = max((probe.peak for probe in self.probes), default=0)
        return measured or (self.cost.memory if self.cost else 0)

    @property
    def step_seconds(self) -> float:
        """Seconds of a step: the last that was measured, else the predicted one."""
        measured = [probe.step_seconds for probe in self.probes if probe.steps]
        return measured[-1] if measured else self.cost.step_seconds if self.cost else 0.0

    @property
    def optimizer(self) -> str:
        """The optimizer of its runs, which no trial has whose cost is unknown."""
        assert self.cost is not None
        return self.cost.optimizer

    def settings(self, asked: TrainSettings) -> TrainSettings:
        """The settings of its runs, from those that the plan was asked for."""
        return replace(asked, accumulate=self.candidate.accumulate, optimizer=self.optimizer)

    @property
    def score(self) -> Score | None:
        """Score of the longest probe; else that of the frozen features; else None."""
        known = [probe.score for probe in self.probes if probe.score is not None]
        return known[-1] if known else self.head.score if self.head else None

    @property
    def rank(self) -> tuple[float, float]:
        """Key to sort by: larger is better, and the lower loss wins a tie."""
        score = self.score
        return (-math.inf, -math.inf) if score is None else (score.value, -score.loss)

    @property
    def seconds(self) -> float:
        """Seconds of planning that the trial took."""
        predicted = self.cost.seconds if self.cost else 0.0
        features = sum(head.seconds for head in self.heads)
        probed = sum(probe.seconds for probe in self.probes)
        other = sum(filter(None, (self.built_seconds, self.failed_seconds, self.late_seconds)))
        return predicted + features + probed + other

    def drop(self, reason: str) -> Trial:
        """The trial, dropped for a reason; an earlier reason is kept."""
        return replace(self, dropped=self.dropped or reason)

    def probed(self, probe: Probe) -> Trial:
        """The trial with one more probe."""
        return replace(self, probes=(*self.probes, probe))
