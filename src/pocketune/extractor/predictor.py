"""Accuracy predicted from the encoding of a sub-network: a small network, or ridge regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.arrays import FloatArray
from pocketune.papers.search_cost import HIDDEN
from pocketune.seeding import seeded

Values = NDArray[np.float64]
Predict = Callable[[FloatArray], Values]
"""Accuracies (N,) for encodings (N, D)."""
Fit = Callable[[FloatArray, Values], Predict]
"""Makes a predictor from encodings (N, D) and accuracies (N,)."""

EPOCHS, BATCH, RATE = 20, 50, 1e-3
"""Of the network's training: 60 epochs predict no better than 20."""
STRENGTHS: Values = np.logspace(-2, 4, 13)
"""Penalties of the ridge regression; the encodings are zeros and ones."""
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Predictor:
    """The better one of two predictors, by the rank correlation in cross-validation.

    Attributes:
        predict: Fitted to all pairs.
        name: `network` or `ridge`.
        correlations: Spearman's rank correlation of each in cross-validation, by name: between the
            measured accuracies and those that were predicted without the fold that they are in.
    """

    predict: Predict
    name: str
    correlations: dict[str, float]


def fit_predictor(codes: FloatArray, accuracies: Values, seed: int = 0) -> Predictor:
    """Fit both predictors to measured pairs, and keep the one that ranks better.

    Args:
        codes: One-hot encodings (N, D).
        accuracies: Measured accuracies (N,), as fractions.
        seed: Of the folds and of the network.
    """
    fits: dict[str, Fit] = {"ridge": fit_ridge, "network": partial(fit_network, seed=seed)}
    folds = np.random.default_rng(seed).permutation(len(codes)) % FOLDS
    correlations = {
        name: _cross_validated(fit, codes, accuracies, folds) for name, fit in fits.items()
    }
    name = max(correlations, key=lambda each: correlations[each])
    return Predictor(fits[name](codes, accuracies), name, correlations)


def fit_ridge(codes: FloatArray, accuracies: Values) -> Predict:
    """Ridge regression on the encoding; its penalty has the least leave-one-out error.

    The residual without a pair is its residual over 1 minus its leverage (Allen, 1974).
    """
    mean, base = codes.mean(axis=0, dtype=np.float64), accuracies.mean()
    axes, roots, basis = np.linalg.svd(codes - mean, full_matrices=False)
    target = accuracies - base
    moments = axes.T @ target
    best = min(STRENGTHS, key=lambda strength: _left_out(axes, roots, moments, target, strength))
    weight = basis.T @ (moments * roots / (roots**2 + best))

    def predict(found: FloatArray) -> Values:
        predicted: Values = (found - mean) @ weight + base
        return predicted

    return predict


def _left_out(
    axes: Values, roots: Values, moments: Values, target: Values, strength: float
) -> float:
    """Mean squared error of each target by the fit to all others."""
    shrunk = roots**2 / (roots**2 + strength)
    leverage = (axes**2) @ shrunk + 1 / len(target)
    residual = (target - axes @ (shrunk * moments)) / np.maximum(1 - leverage, 1e-9)
    return float((residual**2).mean())


def fit_network(codes: FloatArray, accuracies: Values, seed: int = 0) -> Predict:
    """The predictor of Once-for-All and TinyTL: three hidden layers of 400 with ReLU.

    The last layer has no bias; the mean accuracy is added. Targets are divided by their standard
    deviation: accuracies differ by too little to move so many units in few epochs.
    """
    base, spread = float(accuracies.mean()), float(accuracies.std()) or 1.0
    target = torch.from_numpy((accuracies - base) / spread).float()
    given = torch.from_numpy(codes)
    with seeded(seed):
        network = accuracy_network(codes.shape[1])
        optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            for chosen in torch.split(torch.randperm(len(target)), BATCH):
                error = network(given[chosen]).flatten() - target[chosen]
                optimizer.zero_grad()
                error.square().mean().backward()
                optimizer.step()

    @torch.no_grad()
    def predict(found: FloatArray) -> Values:
        predicted: Values = network(torch.from_numpy(found)).flatten().double().numpy()
        return predicted * spread + base

    return predict


def accuracy_network(inputs: int) -> nn.Sequential:
    """Encodings (N, inputs) to standardized accuracies (N, 1)."""
    widths = (inputs, HIDDEN, HIDDEN, HIDDEN)
    hidden = [
        layer
        for before, after in pairwise(widths)
        for layer in (nn.Linear(before, after), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, 1, bias=False))


def rank_correlation(one: Values, other: Values) -> float:
    """Spearman's: the correlation of ranks, where equal values share the mean of theirs.

    0 if either has equal values only.
    """
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


def _ranks(values: Values) -> Values:
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Values = (ends - (counts - 1) / 2)[groups]
    return ranks


def _cross_validated(
    fit: Fit,
    codes: FloatArray,
    accuracies: Values,
    folds: NDArray[np.int64],
) -> float:
    predicted = np.zeros(len(codes))
    for fold in np.unique(folds):
        inside = folds == fold
        predicted[inside] = fit(codes[~inside], accuracies[~inside])(codes[inside])
    return rank_correlation(predicted, accuracies)
