"""Forecasts decide, whatever the estimates say; and the front has nothing that is beaten."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from pocketune.arrays import FloatArray
from pocketune.errors import PocketuneError
from pocketune.extractor.choosing import Chooser, require_feasible
from pocketune.extractor.predictor import Values
from pocketune.extractor.record import Forecast
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.spaces import config_of, genes_of, genome_of
from pocketune.supernet import SubnetConfig

from .small import space

WHERE = space()
GENOME = genome_of(WHERE)
BASE = 50_000_000


def forecast(config: SubnetConfig, trap: int = 0) -> Forecast:
    """A megabyte a block and expansion; deep networks take more than a linear model expects."""
    code = GENOME.encode(genes_of(GENOME, [config]))[0]
    extra = trap * (sum(config.depths) >= 8)
    memory = BASE + int(1_000_000 * code.sum()) + extra
    return Forecast(
        config=config, memory=memory, step_seconds=0.1, macs=memory, training_macs=memory
    )


def predict(codes: FloatArray) -> Values:
    """Larger is better."""
    found: Values = 0.5 + codes.sum(axis=1) / 100
    return found


def chooser(
    budget: int, trap: int = 0, left: Callable[[str], float] = lambda _phase: math.inf
) -> Chooser:
    made: dict[SubnetConfig, Forecast] = {}

    def remembered(config: SubnetConfig) -> Forecast:
        return made.setdefault(config, forecast(config, trap))

    for row in (*GENOME.smallest, *GENOME.sample(np.random.default_rng(0), 60)):
        config = config_of(WHERE, GENOME, row)
        if sum(config.depths) < 8:  # the trap is not among them
            made[config] = forecast(config)
    return Chooser(
        WHERE,
        GENOME,
        predict,
        remembered,
        lambda: list(made.values()),
        ExtractorSettings(budget=budget),
        30,
        left,
        lambda _number, _most: None,
    )


def test_what_exceeds_the_budget_by_its_forecast_is_not_chosen() -> None:
    budget = BASE + 20_500_000
    found = chooser(budget, trap=30_000_000).finalists(GENOME.smallest)
    assert found
    assert all(each.forecast.memory <= budget for each in found)
    assert all(sum(each.forecast.config.depths) < 8 for each in found)
    assert len({each.forecast.config for each in found}) == len(found)
    assert found[0].predicted == max(each.predicted for each in found)


def test_if_nothing_else_fits_the_smallest_is_chosen() -> None:
    smallest = forecast(config_of(WHERE, GENOME, GENOME.smallest[0]))
    found = chooser(smallest.memory).finalists(GENOME.smallest)
    assert [each.forecast.config for each in found] == [smallest.config]


def test_the_front_rises_up_to_the_budget() -> None:
    budget = BASE + 21_500_000
    front = chooser(budget).front(GENOME.smallest)
    assert len(front) > 3
    for one, other in pairwise(front):
        assert one.forecast.memory < other.forecast.memory <= budget
        assert one.predicted < other.predicted


def test_without_time_one_sub_network_that_fits_is_chosen() -> None:
    none_left = chooser(BASE + 21_500_000, left=lambda _phase: 0.0)
    assert len(none_left.finalists(GENOME.smallest)) == 1
    assert len(none_left.front(GENOME.smallest)) == 1


def test_the_smallest_that_would_do_is_named_for_each_limit() -> None:
    small = forecast(WHERE.smallest)
    require_feasible(small, ExtractorSettings(budget=small.memory))
    with pytest.raises(PocketuneError, match=r"needs 6\d MB and 0.1 s for a step, with .* 32 px"):
        require_feasible(small, ExtractorSettings(budget=small.memory - 1, step_seconds=1))
