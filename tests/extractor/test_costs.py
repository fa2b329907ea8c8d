"""Costs of many sub-networks at once agree with those of the networks themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pocketune.extractor.costs import CostModel, keeps, within
from pocketune.extractor.genome import Genes
from pocketune.extractor.predictor import Values
from pocketune.extractor.record import Forecast
from pocketune.extractor.settings import ExtractorSettings
from pocketune.extractor.shapes import Tables
from pocketune.extractor.spaces import config_of, genome_of
from pocketune.papers.tinytl_search import macs_of
from pocketune.supernet import Space, SubnetConfig
from pocketune.weights.saved import build

from .small import space


def kernels_of(where: Space, config: SubnetConfig) -> tuple[int, int]:
    """Values of the kernels and of the norms' biases in the elastic blocks."""
    with torch.device("meta"):
        network = build(where.network_config(config))
    blocks = [m for block in network.features[2:-1] for m in block.modules()]
    kernels = sum(m.weight.numel() for m in blocks if isinstance(m, nn.Conv2d))
    return kernels, sum(m.bias.numel() for m in blocks if isinstance(m, nn.BatchNorm2d))


@pytest.mark.parametrize("first", ["ordinary", "reduced"])
def test_sums_of_tables_are_those_of_the_networks(first: str) -> None:
    where = space(first=first, sizes=(32, 48))
    genome = genome_of(where)
    tables = Tables.of(where, genome)
    genes = genome.sample(np.random.default_rng(0), 4)
    sums = tables.features(genes)
    macs = []
    for row, found in zip(genes, sums, strict=True):
        config = config_of(where, genome, row)
        assert (found[4], found[5]) == kernels_of(where, config)
        macs.append(macs_of(where, config, config.size).inference)
    # What the blocks do not have depends on the size alone.
    rest = np.array(macs) - sums[:, 6]
    for size in (0, 1):
        same = rest[genes[:, 0] == size]
        assert (same == same[0]).all()


WHERE = space(sizes=(32, 48))
GENOME = genome_of(WHERE)


def forecasts(genes: Genes) -> list[Forecast]:
    """As if memory were linear in what the tables have."""
    features = Tables.of(WHERE, GENOME).features(genes)
    memory = 60_000_000 + 32 * features[:, 0] + 2 * features[:, 4]
    return [
        Forecast(
            config=config_of(WHERE, GENOME, row),
            memory=int(each),
            step_seconds=float(each) * 1e-9,
            macs=1,
            training_macs=2,
        )
        for row, each in zip(genes, memory, strict=True)
    ]


@pytest.fixture(scope="module")
def modeled() -> tuple[CostModel, Genes, Values]:
    genes = GENOME.sample(np.random.default_rng(0), 60)
    known = forecasts(genes)
    known[0] = replace(known[0], memory=59_000_000)  # unlike all others
    model = CostModel(WHERE, GENOME, known, ExtractorSettings(budget=61_000_000))
    return model, genes, np.array([each.memory for each in known], float)


def test_estimates_generalize(modeled: tuple[CostModel, Genes, Values]) -> None:
    model, _, _ = modeled
    others = GENOME.sample(np.random.default_rng(1), 50)
    wanted = [each.memory for each in forecasts(others)]
    assert model.estimate(others)[:, 0] == pytest.approx(wanted, rel=0.1)
    assert 0 < model.error < 1


def test_a_forecast_replaces_the_estimate(modeled: tuple[CostModel, Genes, Values]) -> None:
    model, genes, memory = modeled
    assert model.estimate(genes)[:, 0].tolist() == memory.tolist()
    assert model.fits(genes).tolist() == (memory <= 61_000_000).tolist()


def test_each_limit_counts() -> None:
    costs = np.array([[100.0, 0.5, 2e6]])
    for limits in ({"budget": 99}, {"step_seconds": 0.4}, {"macs": 1.9}):
        assert not within(costs, ExtractorSettings(**limits))[0]  # type: ignore[arg-type]
    assert within(costs, ExtractorSettings(budget=100, step_seconds=0.5, macs=2))[0]
    assert within(costs, ExtractorSettings())[0]
    forecast = Forecast(
        config=space().smallest, memory=100, step_seconds=0.5, macs=2_000_000, training_macs=1
    )
    assert keeps(forecast, ExtractorSettings(budget=100))
    assert not keeps(forecast, ExtractorSettings(budget=99))
