"""Dropout masks, drawn by the device so that every engine trains with the same ones."""

from collections.abc import Iterable

import numpy as np

from pocketune.arrays import State
from pocketune.kit.manifest import NoiseSpec


def draw_noise(specs: Iterable[NoiseSpec], rng: np.random.Generator) -> State:
    """One step's masks by name: 0 where an element is dropped, 1 / keep where it is kept.

    An element is kept with probability `keep`, so the mean of a mask is 1. Masks are drawn in the
    order of `specs`; the same generator state gives the same bits on every machine.
    """
    return {spec.name: spec.draw(rng) for spec in specs}
