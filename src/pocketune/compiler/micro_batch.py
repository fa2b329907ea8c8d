"""How many images of a batch the graphs of a kit compute at once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pocketune.compiler.capture.supplied_dropout import SuppliedDropout
from pocketune.compiler.reference import Reference, smooth_images
from pocketune.compiler.settings import CompileSettings
from pocketune.kit.manifest import Manifest
from pocketune.networks.copies import copy_network
from pocketune.objectives import objective_of

MOST_LIVE_BYTES = 48 << 20
"""Most live tensors of a step that computes its batch at once.

More do not fit the caches of a processor, so that parts of the batch take about as long, in a part
of the memory. Smaller tensors are faster at once (benchmarks/bench_micro_batch.py).
"""

_TOLERANCE = 1e-2
"""Relative difference of gradients: far above rounding, and below what mixing the images does."""


def micro_batch(whole: Manifest) -> int:
    """The images of a micro-batch, from the manifest of a step that computes its batch at once.

    They are the largest part of the batch whose live tensors are small, or the batch itself where
    norms need the statistics of all its images.
    """
    if whole.statistics:
        return whole.batch
    live = whole.graphs["step"].memory / whole.batch
    parts = (size for size in range(whole.batch, 0, -1) if whole.batch % size == 0)
    return next((size for size in parts if size * live <= MOST_LIVE_BYTES), 1)


def images_are_independent(network: nn.Module, settings: CompileSettings) -> bool:
    """Whether the gradients of two images are the mean of their own.

    Args:
        network: The adapted network, its dropouts replaced by `SuppliedDropout`; they drop nothing.
        settings: The settings of its step.
    """
    network = copy_network(network)
    for module in network.modules():
        if isinstance(module, SuppliedDropout):
            module.mask = torch.ones(())
    task, rng = settings.task, np.random.default_rng(0)
    objective, inputs = objective_of(task), task.step_inputs()
    reference = Reference(network, objective)
    images = smooth_images(rng, 2, settings.size)
    labels = objective.draw_labels(rng, (2, *task.label_shape(settings.size)))

    def gradients(part: slice) -> NDArray[np.float64]:
        found = reference.step({}, images[part], labels[part], {}, lr=0.0)
        names = (name for name in found if name.startswith("gradient"))
        return np.concatenate([found[name].reshape(-1) for name in names])

    first, second = slice(0, 1), slice(1, 2)
    try:
        both, alone = gradients(slice(2)), [gradients(part) for part in (first, second)]
    except RuntimeError:  # it takes batches of one size only
        return False
    weights = [task.loss_weight(labels[part], inputs) for part in (first, second)]
    off = np.average(alone, axis=0, weights=weights) - both
    return bool(np.linalg.norm(off) <= _TOLERANCE * np.linalg.norm(both))
