"""The steepness of a computed classifier while a run trains.

A classifier from the photos fits the features of evaluation, which norms scale by their running
statistics. In a step, some norms use the statistics of the batch. On photos unlike those of the
pretraining both differ so much that the computed classifier is sure and wrong, and the first steps
would undo more than they learn. A factor on its outputs, the inverse of a temperature (Guo et al.,
On Calibration of Modern Neural Networks, ICML 2017), makes it as sure as it is right.
"""

from __future__ import annotations

import math
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Purpose, random_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from pocketune.device.engine.base import Engine
    from pocketune.device.train.folder import Run

BATCHES = 4
"""Batches of photos that tell how sure a classifier may be."""
STRIDE = 4.0
"""What the outputs are divided by from one trial to the next."""
LEAST = STRIDE**-8
"""Smallest factor."""


def temper(run: Run, engine: Engine, after_batch: Callable[[int], None]) -> float:
    """Divide the outputs of the classifier until the loss of the first steps falls no more.

    The engine's classifier is changed in place, and nothing else. One whose steps see the features
    of evaluation stays as it is.

    Args:
        run: A run that has made no steps, whose classifier was computed from its photos.
        engine: Its engine, with the values that it starts from.
        after_batch: Called with the number of photos so far.

    Returns:
        The factor, 1 or less.
    """
    if not engine.statistics:
        return 1.0
    weight, bias = run.photos.task.head
    offsets = np.float32(0) if run.adjustment is None else run.adjustment.offsets
    first = {name: engine.parameters[name].copy() for name in (weight, bias)}
    first[bias] -= offsets
    statistics = {name: value.copy() for name, value in engine.statistics.items()}
    seen = 0

    def set_outputs(factor: float) -> None:
        np.copyto(engine.parameters[weight], first[weight] * np.float32(factor))
        np.copyto(engine.parameters[bias], first[bias] * np.float32(factor) + offsets)

    def loss(factor: float) -> float:
        nonlocal seen
        set_outputs(factor)
        losses = []
        with closing(run.photos.training.epoch(0)) as photos:
            for batch in islice(photos, BATCHES):
                rng = random_stream(run.settings.seed, Purpose.DROPOUT, 0)
                losses.append(engine.gradients(batch.images, batch.labels, rng).loss)
                for name, value in statistics.items():
                    np.copyto(engine.statistics[name], value)
                seen += len(batch.images)
                after_batch(seen)
        mean = sum(losses) / max(1, len(losses))
        return mean if math.isfinite(mean) else math.inf

    factor, least = 1.0, loss(1.0)
    while factor > LEAST and (less := loss(factor / STRIDE)) <= least:
        factor, least = factor / STRIDE, less
    set_outputs(factor)
    return factor
