"""The second phase's end: the best sub-networks within the limits, and the whole front.

The search estimates what a sub-network takes. Whatever it finds gets a forecast of its own, and is
left out if that exceeds a limit; the estimates then learn from that forecast, and the search is
repeated. Only forecasts decide what is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pocketune.device.memory.sizes import format_size
from pocketune.errors import PocketuneError
from pocketune.extractor.costs import CostModel, keeps
from pocketune.extractor.evolution import evolve
from pocketune.extractor.genome import Genes, Genome
from pocketune.extractor.predictor import Predict
from pocketune.extractor.record import Finalist, Forecast
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.spaces import config_of
from pocketune.pareto import pareto_front
from pocketune.planner.limits import whole_megabytes
from pocketune.supernet import Space, SubnetConfig

FINALISTS = 8
"""Sub-networks of the search that are measured."""
ROUNDS = 6
"""Searches at most, each with the forecasts of what the ones before have found."""
LEVELS = 8
"""Limits of memory for which the front has a sub-network."""

Forecasts = Callable[[SubnetConfig], Forecast]
"""The forecast of a sub-network; one that was made before is remembered."""


def require_feasible(smallest: Forecast, settings: ExtractorSettings) -> None:
    """Refuse limits that not even the smallest sub-network keeps.

    Raises:
        PocketuneError: It does not; what it takes is named.
    """
    if keeps(smallest, settings):
        return
    needed = []
    if settings.budget_bytes is not None:
        needed.append(format_size(whole_megabytes(smallest.memory)))
    if settings.step_seconds is not None:
        needed.append(f"{smallest.step_seconds:.2g} s for a step")
    if settings.macs is not None:
        needed.append(f"{smallest.macs / 1e6:.1f} million multiplications")
    raise PocketuneError(
        f"no sub-network keeps {settings.limits_text}: the smallest one needs "
        f"{' and '.join(needed)}, with images of {smallest.config.size} px; give it as much"
    )


@dataclass(frozen=True)
class Chooser:
    """Searches a space by predicted accuracy.

    Attributes:
        space: The sub-networks.
        genome: Their choices.
        predict: Predicts accuracies.
        forecasts: Makes and remembers forecasts.
        known: Sub-networks that have one.
        settings: The limits.
        generations: Generations of each search.
        left: Seconds that are left for the front, or for the search, by name.
        shown: Called with the searches that were made and their largest number.
    """

    space: Space
    genome: Genome
    predict: Predict
    forecasts: Forecasts
    known: Callable[[], list[Forecast]]
    settings: ExtractorSettings
    generations: int
    left: Callable[[str], float]
    shown: Callable[[int, int], None]

    def finalists(self, start: Genes) -> list[Finalist]:
        """The best sub-networks that keep the limits by their forecasts, the best first.

        Where time is short, there are fewer.

        Args:
            start: Sub-networks to begin with besides random ones.
        """
        for number in range(ROUNDS):
            self.shown(LEVELS + number + 1, LEVELS + ROUNDS)
            found = list(self._checked("search", self.settings, start, FINALISTS))
            inside = [each for each in found if keeps(each.forecast, self.settings)]
            if len(inside) == len(found) or not self.left("search"):
                break
        return inside or [self._finalist(self.genome.smallest)]

    def front(self, start: Genes) -> list[Finalist]:
        """The best sub-network within each of some limits of memory, without those that are beaten.

        The limits are even steps from the smallest sub-network to the budget, or to the largest.
        Where time is short, the front ends before the largest.
        """
        ends = (self.genome.smallest, self.genome.largest)
        least, most = (self.forecasts(self._config(each)).memory for each in ends)
        most = min(most, self.settings.budget_bytes or most)
        found = [self._finalist(self.genome.smallest)]
        for number, budget in enumerate(np.linspace(least, most, LEVELS + 1)[1:], 1):
            if not self.left("front"):
                break
            self.shown(number, LEVELS + ROUNDS)
            within = replace(self.settings, budget=int(budget))
            for _ in range(2):
                best = next(self._checked("front", within, start, 1))
                if keeps(best.forecast, within):
                    found.append(best)
                    break
        return pareto_front(found, lambda each: each.forecast.memory, lambda each: each.predicted)

    def _checked(
        self, phase: str, settings: ExtractorSettings, start: Genes, count: int
    ) -> Iterator[Finalist]:
        """The best of a search, each with its forecast; only the first if the time is over."""
        best = self._search(phase, settings, start)
        for number in range(min(count, len(best))):
            if number and not self.left(phase):
                break
            yield self._finalist(best[number : number + 1])

    def _search(self, phase: str, settings: ExtractorSettings, start: Genes) -> Genes:
        """The best sub-networks (N, G) by predicted accuracies and estimated costs."""
        costs = CostModel(self.space, self.genome, self.known(), settings)
        rng = np.random.default_rng(settings.seed)
        inside = start[costs.fits(start)]
        return evolve(
            self.genome,
            lambda some: self.predict(self.genome.encode(some)),
            costs.fits,
            rng,
            start=inside,
            generations=self.generations,
            over=lambda: not self.left(phase),
        )

    def _finalist(self, row: Genes) -> Finalist:
        """A sub-network (1, G) with its forecast and its predicted accuracy."""
        predicted = float(self.predict(self.genome.encode(row))[0])
        return Finalist(forecast=self.forecasts(self._config(row)), predicted=predicted)

    def _config(self, row: Genes) -> SubnetConfig:
        return config_of(self.space, self.genome, row[0])
