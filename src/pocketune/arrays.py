"""Types of arrays and paths that both halves share."""

import os

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
State = dict[str, FloatArray]
"""Arrays by state-dict name."""

StrPath = str | os.PathLike[str]
