"""The search climbs, keeps its limits, and does not lose what it has found."""

from __future__ import annotations

import numpy as np

from pocketune.extractor.evolution import evolve
from pocketune.extractor.genome import Genes, Genome
from pocketune.extractor.predictor import Values

SPACE = Genome(sizes=(96,))
EFFECTS = np.random.default_rng(0).normal(size=127)


def score(genes: Genes) -> Values:
    scored: Values = SPACE.encode(genes) @ EFFECTS
    return scored


def size(genes: Genes) -> Values:
    sizes: Values = SPACE.encode(genes).sum(axis=1)
    return sizes


def test_it_finds_nearly_the_best() -> None:
    best = evolve(
        SPACE, score, lambda genes: size(genes) < 99, np.random.default_rng(0), generations=100
    )
    random = score(SPACE.sample(np.random.default_rng(1), 5000))
    assert score(best)[0] > random.max() + 2 * random.std()
    assert (np.diff(score(best)) <= 0).all()


def test_everything_that_it_finds_keeps_the_limits_and_differs() -> None:
    limit = 29
    best = evolve(
        SPACE, score, lambda genes: size(genes) <= limit, np.random.default_rng(0), generations=30
    )
    assert (size(best) <= limit).all()
    assert len(np.unique(SPACE.encode(best), axis=0)) == len(best) == 25


def test_a_start_that_is_best_is_kept() -> None:
    found = evolve(
        SPACE, score, lambda genes: size(genes) < 99, np.random.default_rng(0), generations=50
    )
    again = evolve(
        SPACE,
        score,
        lambda genes: size(genes) < 99,
        np.random.default_rng(1),
        start=found,
        generations=2,
    )
    assert score(again)[0] >= score(found)[0]


def test_where_only_the_smallest_fits_it_is_the_result() -> None:
    best = evolve(
        SPACE, score, lambda genes: ~genes.any(axis=1), np.random.default_rng(0), generations=3
    )
    assert (best == SPACE.smallest).all()
