"""Independent random streams from the one seed of a run."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The uses of random numbers in a run."""

    SPLIT = 0
    ORDER = 1
    CROP = 2
    DROPOUT = 3
    CLASSIFIER = 4
    SAMPLE = 5
    SUBNET = 6


def random_stream(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """A random stream for one purpose and its `numbers`, such as an epoch's.

    The spawn key makes the streams independent. Numbers appended to the seed would not: numpy
    treats (seed, 1) and (seed, 1, 0) as the same seed.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *numbers)))
