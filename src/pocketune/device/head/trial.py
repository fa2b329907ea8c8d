"""Closed forms on trial: leave-one-out scores of each strength and temperature."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from pocketune.arrays import FloatArray
from pocketune.device.head.sums import Blocks, Exact, Sums
from pocketune.tasks import Labels, Score

TEMPERATURES: Exact = np.logspace(-10, 10, 21, base=2)
"""Factors on the outputs; between two of them, the loss is close to a parabola of the logarithm."""

JUDGED = 1 << 23
"""Outputs after which no more photos are left out: those of about 900 photos with 10,000 classes.
Each is computed for up to 126 pairs of strength and temperature."""


class Form(Protocol):
    """A closed form of the output layer.

    Attributes:
        name: Its name for the user.
        strengths: Its regularizations, (S,).
    """

    name: str
    strengths: Exact

    def left_out(self, rows: FloatArray, labels: Labels) -> Iterator[Exact]:
        """For each strength, the outputs (N, K) for photos by the fits without each of them.

        Those of photos that cannot be left out mean nothing; see `Sums.testable`.
        """
        ...

    def layer(self, index: int) -> tuple[Exact, Exact]:
        """Weight (K, D) and bias (K,) for a strength."""
        ...


class Verdict(NamedTuple):
    """The best strength of a form, by leave-one-out.

    Attributes:
        chosen: Index of the strength.
        factor: The factor on its outputs that gives the lowest loss.
        loss: That loss, with the weights of the photos.
        score: Metric and loss; each photo counts alike.
    """

    chosen: int
    factor: float
    loss: float
    score: Score


def try_out(form: Form, blocks: Blocks, sums: Sums) -> Verdict | None:
    """The best strength of a form; None if no photo can be left out.

    Photos are left out in order until they have `JUDGED` outputs, so that the time is bounded; all
    forms see the same ones.

    Args:
        form: Fitted to all photos.
        blocks: What it was fitted to, in an order of which any beginning is a fair sample.
        sums: Their sums.
    """
    task = sums.task
    factors = TEMPERATURES if task.activation else np.ones(1)
    losses = np.zeros((2, len(form.strengths), len(factors)))  # weighted, and each photo alike
    marks, weight, images = np.zeros(len(form.strengths)), 0.0, 0
    for rows, labels in blocks():
        known = sums.testable(labels)
        if not known.any():
            continue
        weights = sums.weights[sums.groups(labels)] * known
        weight, images = weight + float(weights.sum()), images + int(known.sum())
        for strength, exact in enumerate(form.left_out(rows, labels)):
            outputs: FloatArray = exact.astype(np.float32)
            for number, factor in enumerate(factors):
                each = task.losses(factor * outputs, labels)
                losses[:, strength, number] += weights @ each, known @ each
            right = task.marks(outputs, labels).reshape(len(labels), -1)
            marks[strength] += right[known].mean(axis=1).sum()
        if images * len(sums.targets) >= JUDGED:
            break
    if not images:
        return None
    chosen = int(losses[0].min(axis=1).argmin())
    each = losses[0, chosen] / weight
    # So many photos, even all predicted correctly, are no evidence for a lower loss (Laplace's rule
    # of succession). Without a floor, classes that are far apart would have infinite weights.
    floor = 1 / (images + 2)
    near = int(np.maximum(each, floor).argmin())
    factor, loss = lowest(factors, each, near)
    score = task.score(float(marks[chosen]) / images, float(losses[1, chosen, near]) / images)
    return Verdict(chosen, factor, min(loss, float(each.min())), score)


def lowest(factors: Exact, losses: Exact, near: int) -> tuple[float, float]:
    """The lowest point of the parabola through the loss at a factor and its two neighbors."""
    around = losses[max(near - 1, 0) : near + 2]
    if len(around) < 3 or around.argmin() != 1:
        return float(factors[near]), float(losses[near])
    below, middle, above = around
    bend = below - 2 * middle + above
    step = 0.5 * (below - above) / bend if bend > 0 else 0.0
    return float(factors[near] * 2.0**step), float(middle - 0.25 * (below - above) * step)
