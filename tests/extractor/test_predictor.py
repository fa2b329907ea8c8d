"""Both predictors learn from few noisy pairs; the one that ranks better is used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketune.arrays import FloatArray
from pocketune.extractor.genome import Genome
from pocketune.extractor.predictor import (
    STRENGTHS,
    Values,
    accuracy_network,
    fit_network,
    fit_predictor,
    fit_ridge,
    rank_correlation,
)
from pocketune.papers.search_cost import predictor_macs

SPACE = Genome(sizes=(96,))


def pairs(count: int, seed: int, noise: float = 0.0) -> tuple[FloatArray, Values]:
    """Encodings, and accuracies that the choices add to; noise relative to their deviation."""
    codes = SPACE.encode(SPACE.sample(np.random.default_rng(seed), count))
    effects = np.random.default_rng(9).normal(0, 0.01, codes.shape[1])
    accuracies = 0.8 + codes @ effects
    noisy = np.random.default_rng(seed + 1).normal(0, noise * accuracies.std(), count)
    return codes, accuracies + noisy


@pytest.mark.parametrize("fit", [fit_ridge, fit_network])
def test_it_ranks_sub_networks_that_it_has_not_seen(fit: type) -> None:
    predict = fit(*pairs(200, 0, noise=0.3))
    codes, accuracies = pairs(100, 5)
    assert rank_correlation(predict(codes), accuracies) > 0.75


def test_the_better_one_is_used() -> None:
    found = fit_predictor(*pairs(120, 0, noise=0.5))
    assert found.name == max(found.correlations, key=lambda name: found.correlations[name])
    assert set(found.correlations) == {"network", "ridge"}
    codes, accuracies = pairs(50, 5)
    assert rank_correlation(found.predict(codes), accuracies) > 0.5


def test_the_same_seed_gives_the_same_predictions() -> None:
    codes, accuracies = pairs(60, 0)
    one, other = (fit_network(codes, accuracies, seed=3)(codes) for _ in range(2))
    assert (one == other).all()


def test_equal_accuracies_are_predicted() -> None:
    codes, _ = pairs(30, 0)
    for fit in (fit_ridge, fit_network):
        assert fit(codes, np.full(30, 0.5))(codes) == pytest.approx(0.5, abs=0.2)


def test_the_penalty_of_ridge_has_the_least_error_of_leaving_each_pair_out() -> None:
    codes, accuracies = pairs(40, 0, noise=1.0)
    rows, targets = codes - codes.mean(axis=0, dtype=np.float64), accuracies - accuracies.mean()

    def hat(strength: float) -> Values:
        inverse = np.linalg.inv(rows.T @ rows + strength * np.eye(rows.shape[1]))
        found: Values = rows @ inverse @ rows.T
        return found

    def error(strength: float) -> float:
        share = 1 - np.diag(hat(strength)) - 1 / len(rows)  # the mean is fitted to a pair, too
        return float((((targets - hat(strength) @ targets) / share) ** 2).mean())

    best = min(STRENGTHS, key=error)
    expected = hat(best) @ targets + accuracies.mean()
    assert fit_ridge(codes, accuracies)(codes) == pytest.approx(expected)


def test_the_network_has_the_published_multiplications() -> None:
    layers = [p for p in accuracy_network(127).parameters() if p.ndim == 2]
    assert sum(p.numel() for p in layers) == predictor_macs(127) == 371_200


@given(st.lists(st.integers(0, 5), min_size=2, max_size=12))
def test_rank_correlation_is_that_of_mean_ranks(values: list[int]) -> None:
    one = np.array(values, float)
    other = np.arange(len(one), dtype=float) ** 3
    ranks = [sum(v < w for v in values) + (values.count(w) - 1) / 2 for w in values]
    if len(set(values)) == 1:
        assert rank_correlation(one, other) == 0
    else:
        assert rank_correlation(one, other) == pytest.approx(
            np.corrcoef(ranks, range(len(one)))[0, 1]
        )
