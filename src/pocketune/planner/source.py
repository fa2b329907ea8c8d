"""Where candidates come from, and how each is predicted, ranked, built and tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from pocketune.planner.candidate import Candidate, Cost
    from pocketune.planner.plan import LeftOut
    from pocketune.planner.trial import HeadScore, Probe


class Source(Protocol):
    """Candidates, and everything that a plan wants to know about them.

    Each method may raise a ``PocketuneError``, which drops the candidate and is its reason.
    """

    def find(self) -> tuple[list[Candidate], list[LeftOut]]:
        """All candidates, and what gives none. The order is the same each time."""
        ...

    def cost(self, candidate: Candidate) -> Cost:
        """Its predicted cost, without running anything."""
        ...

    def head(self, candidate: Candidate) -> HeadScore:
        """The score of its group's features before any training."""
        ...

    def kit(self, candidate: Candidate) -> Path:
        """Its kit, which is built unless it exists."""
        ...

    def probe(self, candidate: Candidate, kit: Path, steps: int, seconds: float) -> Probe:
        """A run of so many steps, in a process that is stopped after so many seconds."""
        ...
