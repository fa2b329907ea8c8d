"""Candidates whose cost and accuracy are known, and a machine that can die at any moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from pocketune.data.images.cost import Decoding
from pocketune.device.machine import Machine
from pocketune.errors import PocketuneError
from pocketune.planner.candidate import Candidate, Cost
from pocketune.planner.evidence import Evidence
from pocketune.planner.journal import Journal
from pocketune.planner.limits import Limits
from pocketune.planner.plan import Asked, LeftOut, Plan
from pocketune.planner.search import Search
from pocketune.planner.trial import HeadScore, Length, Probe, Trial
from pocketune.tasks import Score

MB = 1_000_000
IMAGES = 4000


class Killed(BaseException):
    """The process dies."""


@dataclass(frozen=True)
class Facts:
    """The truth about a candidate.

    Attributes:
        memory: Megabytes.
        value: Accuracy after endless training.
        step: Seconds of a step.
        features: Accuracy of its frozen features.
        broken: Whether its runs fail.
    """

    memory: int = 50
    value: float = 0.9
    step: float = 0.01
    features: float = 0.5
    broken: bool = False


@dataclass
class FakeSource:
    """Candidates with known facts; dies before the call number `dies`.

    Attributes:
        drafted: Whether their kits have to be built.
        smaller: The facts of fallbacks.
        lengths: How long the short runs were to be.
    """

    facts: dict[str, Facts]
    dies: int | None = None
    calls: list[str] = field(default_factory=list)
    left_out: tuple[LeftOut, ...] = ()
    drafted: bool = False
    smaller: tuple[dict[str, Facts], ...] = ()
    lengths: list[Length] = field(default_factory=list)

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        found = [candidate(name) for name in self.facts]
        if self.drafted:
            found = [replace(each, kit=None) for each in found]
        return found, list(self.left_out)

    def fallbacks(self) -> Iterator[list[Candidate]]:
        for facts in self.smaller:
            self.facts = {**self.facts, **facts}
            yield [candidate(name) for name in facts]

    def cost(self, candidate: Candidate) -> Cost:
        facts = self._called("cost", candidate)
        return Cost(
            optimizer="adam",
            memory=facts.memory * MB,
            least_memory=facts.memory * MB,
            step_seconds=facts.step,
            step_flops=round(1e9 * facts.step),
            parameters=1000,
            seconds=0.1,
        )

    def head(self, candidate: Candidate, count: int) -> HeadScore:
        facts = self._called("head", candidate)
        score = Score("accuracy", facts.features, 1.0)
        new = count if count == 240 else count - 240
        return HeadScore(score=score, seconds=new / 240, photos=count)

    def kit(self, candidate: Candidate, optimizer: str) -> Path:
        self._called("kit", candidate)
        return Path(f"{candidate.name}.zip")

    def probe(self, trial: Trial, kit: Path, length: Length) -> Probe:
        facts = self._called("probe", trial.candidate)
        self.lengths.append(length)
        if facts.broken:
            raise PocketuneError("the loss is not finite")
        value = facts.value * (1 - 1 / (1 + length.steps / 20))
        return Probe(
            steps=length.steps,
            score=Score("accuracy", value, 2 - value),
            peak=facts.memory * MB - 1,
            step_seconds=facts.step,
            seconds=1.0 + length.steps * facts.step,
            photos=min(length.most or IMAGES, 200),
        )

    def _called(self, what: str, candidate: Candidate) -> Facts:
        if len(self.calls) == self.dies:
            raise Killed
        self.calls.append(f"{what} {candidate.name}")
        return self.facts[candidate.name]


THREE = {
    "small": Facts(memory=50, value=0.7, step=0.005),
    "middle": Facts(memory=70, value=0.8, step=0.01),
    "large": Facts(memory=120, value=0.9, step=0.02),
}
MANY = {
    f"{name}{number}": Facts(40 + 10 * number, 0.5 + 0.05 * number, 0.01, 0.3 + 0.02 * number)
    for name in "ab"
    for number in range(5)
}


def candidate(name: str, group: str | None = None) -> Candidate:
    return Candidate(
        name=name,
        group=group or name,
        kit=f"{name}.zip",
        network={"name": "tiny"},
        weights=None,
        method={"name": "last"},
        size=96,
        batch=8,
        accumulate=1,
        frozen_bits=32,
    )


def asked(budget: int | None = None, time: float | None = None, **changes: object) -> Asked:
    """What a plan is asked for; the budget is in megabytes."""
    values: dict[str, object] = {
        "version": "0.1.0",
        "machine": Machine("Linux", "a processor", 2, "3.11.0"),
        "photos": "photos",
        "fingerprint": "0" * 64,
        "training": 800,
        "validation": 200,
        "classes": 3,
        "task": "classification",
        "limits": Limits(budget=None if budget is None else budget * MB, time=time),
        "settings": {"seed": 0},
    }
    return Asked(**{**values, **changes})  # type: ignore[arg-type]


def search(
    folder: Path,
    source: FakeSource,
    budget: int | None = None,
    time: float | None = None,
    images: int = IMAGES,
    decoding: Decoding | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Plan:
    """The plan of a source; its folder is that of an earlier one that was stopped, or new."""
    journal = Journal(folder, asked(budget, time), say=lambda _: None)
    evidence = Evidence(source, source.probe, journal, images, lambda _: decoding, clock)
    return Search(evidence).run()
