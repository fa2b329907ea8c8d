"""Evolutionary search for the sub-network of the highest predicted accuracy within limits.

The settings are those that Once-for-All has published; TinyTL names the method and gives none. A
library such as pymoo would bring four packages, and its operators would still have to be written:
children are redrawn until they keep the limits, and all of this is one array operation each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pocketune.extractor.genome import TRIES, Fits, Genes, Genome, cross, fitting
from pocketune.extractor.predictor import Values

POPULATION, GENERATIONS = 100, 500
PARENTS = 0.25
"""Share of the population whose best become parents; they stay."""
MUTATION = 0.1


def evolve(
    genome: Genome,
    score: Callable[[Genes], Values],
    fits: Fits,
    rng: np.random.Generator,
    *,
    start: Genes | None = None,
    generations: int = GENERATIONS,
    over: Callable[[], bool] = lambda: False,
) -> Genes:
    """The best sub-networks of all generations, as many as there are parents, all different.

    A generation is the parents, as many children by mutation of a parent, and as many by crossover
    of two, where each gene comes from either: the best quarter of all become the next parents.

    Args:
        genome: The choices.
        score: Predicted accuracies (N,) of sub-networks.
        fits: The limits, which the smallest sub-network keeps.
        rng: Random numbers.
        start: Sub-networks that keep the limits, to begin with besides random ones.
        generations: Number of generations.
        over: Whether there is no time for another generation.

    Returns:
        Sub-networks (N, G), the best first.
    """
    parents = max(2, round(PARENTS * POPULATION))
    drawn = fitting(genome, rng, POPULATION, fits)
    best = _best(genome, drawn if start is None else np.concatenate([start, drawn]), score, parents)
    for _ in range(generations):
        if over():
            break
        children = _generation(genome, best, fits, rng)
        best = _best(genome, np.concatenate([best, children]), score, parents)
    return best


def _generation(genome: Genome, parents: Genes, fits: Fits, rng: np.random.Generator) -> Genes:
    """As many mutants as children of two parents."""
    half = POPULATION // 2
    one, other, mutated = (parents[rng.integers(len(parents), size=half)] for _ in range(3))
    return np.concatenate(
        [
            _children(mutated, fits, lambda at: genome.mutate(mutated[at], rng, MUTATION)),
            _children(one, fits, lambda at: cross(one[at], other[at], rng)),
        ]
    )


def _children(parents: Genes, fits: Fits, draw: Callable[[NDArray[np.int64]], Genes]) -> Genes:
    """A child of each parent that keeps the limits; the parent where no draw does.

    Args:
        parents: They keep the limits.
        fits: The limits.
        draw: Draws children of the parents at these places.
    """
    children: Genes = parents.copy()
    waiting = np.arange(len(parents))
    for _ in range(TRIES):
        drawn = draw(waiting)
        inside = fits(drawn)
        children[waiting[inside]] = drawn[inside]
        waiting = waiting[~inside]
        if not len(waiting):
            break
    return children


def _best(genome: Genome, genes: Genes, score: Callable[[Genes], Values], count: int) -> Genes:
    """The best of different sub-networks, the best first."""
    _, places = np.unique(genome.canonical(genes), axis=0, return_index=True)
    genes = genes[np.sort(places)]
    return genes[np.argsort(-score(genes), kind="stable")[:count]]
