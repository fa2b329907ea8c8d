"""Types of arrays and paths that both halves share, and their distinct values."""

import os

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
State = dict[str, FloatArray]
"""Arrays by state-dict name."""

StrPath = str | os.PathLike[str]


def distinct(values: NDArray[np.integer]) -> NDArray[np.integer]:
    """The sorted distinct values of an array.

    `np.unique` gives the same, but imports numpy's masked arrays where it does not count too: 1 MB
    of every training process.
    """
    found: NDArray[np.integer] = np.unique(values, return_counts=True)[0]
    return found
