"""Random numbers for everything that a run draws, out of one seed."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for."""

    SPLIT = 0
    ORDER = 1
    CROP = 2
    DROPOUT = 3
    CLASSIFIER = 4


def random_stream(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """A stream that no other purpose and no other ``numbers``, such as an epoch's, share.

    The spawn key is what keeps them apart. Numbers behind the seed would not: numpy takes
    (seed, 1) and (seed, 1, 0) for the same.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, *numbers)))
