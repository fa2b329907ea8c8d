"""The time limit of a search: until when each phase may work, and what the kit will take."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from pocketune.device.train.display import format_time
from pocketune.errors import PocketuneError
from pocketune.extractor.record import Forecast

UNTIL = {"adaptation": 0.4, "measurement": 0.7, "forecasts": 0.8, "front": 0.9, "search": 1.0}
"""Share of the time before the kit after which each phase ends."""
KIT = 8.0
"""Seconds of building the kit of the largest sub-network, beside those of a forecast, over those of
its forecast: 7.6 around MobileNetV2 0.35 at 224 px, on one core."""
LAST = 2.0
"""What the last forecast of the search and measuring the finalists take, over the forecast of the
largest sub-network."""
FEWEST = 3.0
"""What the phases before the kit take at least, over the forecast of the largest sub-network."""


@dataclass
class Clock:
    """What is left of the time limit, of which the end is kept for the kit.

    Attributes:
        limit: Seconds of the whole command; infinite for no limit.
        share: Share of these that the search with its kit has; a run has the rest.
        began: `time.monotonic()` when this process began.
        before: Seconds that earlier processes have spent on the same search.
        forecast: Seconds of the forecast of the largest sub-network.
        largest: Multiplications of the largest sub-network.
        kept: Seconds that are kept for the kit.
    """

    limit: float
    share: float
    began: float
    before: float = 0.0
    forecast: float = 0.0
    largest: int = 1
    kept: float = 0.0

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.limit)

    @property
    def end(self) -> float:
        """Seconds after which the kit has to be built."""
        return self.limit * self.share

    @property
    def spent(self) -> float:
        """Seconds of this search so far."""
        return self.before + time.monotonic() - self.began

    def left(self, phase: str) -> float:
        """Seconds until a phase has to end, 0 if that time is over."""
        return max(0.0, UNTIL[phase] * (self.end - self.kept) - self.spent)

    def kit_seconds(self, macs: float) -> float:
        """Estimated seconds of building the kit of a sub-network with these multiplications."""
        return self.forecast * (1 + KIT * macs / self.largest)

    def keep_for_kit(self, seconds: float, largest: Forecast, likely: float) -> None:
        """Keep the end of the time for a kit, which cannot be made faster.

        Args:
            seconds: Those of the forecast of the largest sub-network, whose graphs are made like
                those of a kit.
            largest: That forecast.
            likely: Multiplications of the sub-network that will be chosen, as far as is known.

        Raises:
            PocketuneError: Too little is left before it.
        """
        self.forecast, self.largest = seconds, largest.macs
        self.kept = self.kit_seconds(likely) + LAST * seconds
        needed = self.spent + self.kept + FEWEST * seconds
        if needed > self.end:
            minutes = math.ceil(needed / self.share / 60)
            raise PocketuneError(
                f"the time is too short for this supernet on this machine: building a kit takes "
                f"about {format_time(self.kept)}, and what comes before it at least "
                f"{format_time(needed - self.kept)}; set time={minutes}m"
            )
