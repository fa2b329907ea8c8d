"""The time limit of `pocketune train`."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """When a command has to end.

    Attributes:
        end: In seconds of `time.monotonic`; None for never.
    """

    end: float | None

    @classmethod
    def of(cls, limit: str | None) -> Deadline:
        """The deadline of a limit that begins now.

        Raises:
            PocketuneError: The limit is not a time.
        """
        from pocketune.planner.limits import parse_time

        return cls(None if limit is None else time.monotonic() + parse_time(limit))

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return float("inf") if self.end is None else max(0.0, self.end - time.monotonic())
