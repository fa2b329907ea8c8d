"""A new output layer, for photos whose classes are not the kit's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pocketune.data import Purpose, random_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pocketune.arrays import FloatArray, State
    from pocketune.kit.manifest import ClassifierSpec


def with_new_classifier(
    state: Mapping[str, FloatArray], classifier: ClassifierSpec, classes: int, seed: int
) -> State:
    """The state with an untrained output layer of ``classes`` classes.

    Weights are uniform in +-1 / sqrt(fan-in) and biases zero, as in TinyTL (Cai et al., 2020).
    """
    rng = random_stream(seed, Purpose.CLASSIFIER)
    old = state[classifier.weight]
    limit = 1.0 / math.sqrt(math.prod(old.shape[1:]))
    weight = rng.uniform(-limit, limit, (classes, *old.shape[1:])).astype(np.float32)
    return {
        **state,
        classifier.weight: weight,
        classifier.bias: np.zeros(classes, np.float32),
    }
