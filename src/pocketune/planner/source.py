"""Where candidates come from, and how each is predicted, ranked and built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pocketune.planner.candidate import Candidate, Cost
    from pocketune.planner.plan import LeftOut
    from pocketune.planner.trial import HeadScore


class Source(Protocol):
    """Candidates, and everything that a plan wants to know about them.

    Each method may raise a `PocketuneError`, which drops the candidate and is its reason.
    """

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        """All candidates, and what gives none.

        The order is the same each time.
        """
        ...

    def fallbacks(self) -> Iterator[list[Candidate]]:
        """More candidates that take less memory, in rounds, which a plan looks at one by one.

        It asks for the next round only where nothing before fits the budget.
        """
        ...

    def cost(self, candidate: Candidate) -> Cost:
        """Its predicted cost, without running anything."""
        ...

    def head(self, candidate: Candidate, count: int) -> HeadScore:
        """The score of its group's features on about so many photos, before any training."""
        ...

    def kit(self, candidate: Candidate, optimizer: str) -> Path:
        """Its kit, which is built unless it exists; it fits the budget like its prediction."""
        ...


class Sources:
    """Several sources as one.

    Args:
        sources: The sources, in the order of their candidates.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._owners: dict[str, Source] = {}

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        """The candidates of all sources."""
        found: list[Candidate] = []
        left_out: list[LeftOut] = []
        for source in self._sources:
            some, others = source.find()
            self._owners |= dict.fromkeys((each.name for each in some), source)
            found += some
            left_out += others
        return found, left_out

    def fallbacks(self) -> Iterator[list[Candidate]]:
        """The rounds of one source after those of another."""
        for source in self._sources:
            for some in source.fallbacks():
                self._owners |= dict.fromkeys((each.name for each in some), source)
                yield some

    def cost(self, candidate: Candidate) -> Cost:
        """Its predicted cost."""
        return self._owners[candidate.name].cost(candidate)

    def head(self, candidate: Candidate, count: int) -> HeadScore:
        """The score of its features."""
        return self._owners[candidate.name].head(candidate, count)

    def kit(self, candidate: Candidate, optimizer: str) -> Path:
        """Its kit."""
        return self._owners[candidate.name].kit(candidate, optimizer)
