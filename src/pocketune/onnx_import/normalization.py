"""Which images a file takes, where it begins with their normalization."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pocketune.networks.about import Normalization
from pocketune.onnx_import.file import Node, OnnxFile
from pocketune.onnx_import.values import Array

_NORMALIZE = {"Add", "Sub", "Mul", "Div", "Transpose", "Cast", "Identity", "Slice", "Gather"}
"""Operators of a normalization; others see normalized images. The last two reverse the colors."""


def own_normalization(file: OnnxFile) -> Normalization:
    """What a file leaves to be done: its images are pixels of 0 to 255, or of 0 to 1.

    The mean that it subtracts tells, or the factor alone. ImageNet's, if the file has neither: a
    learned norm of normalized images has a mean near 0 and a deviation near 1.
    """
    name = file.input
    while (node := _only_reader(name, file)) is not None:
        name = node.output
    before, after = _channels(file.images), _channels(file.values[name])
    deviations = before.std(1) / after.std(1)
    mean = np.mean(before.mean(1) - deviations * after.mean(1))
    if mean > 32 or deviations.mean() > 32:
        return Normalization.PIXELS
    return Normalization.UNIT if 0.3 < mean < 0.7 else Normalization.IMAGENET


def _only_reader(name: str, file: OnnxFile) -> Node | None:
    """The operator that alone reads these maps, if it may normalize them."""
    readers = [node for node in file.nodes if name in node.data]
    if len(readers) != 1 or readers[0].kind not in _NORMALIZE or len(readers[0].data) != 1:
        return None
    before, after = (sorted(file.values[each].shape) for each in (name, readers[0].output))
    return readers[0] if before == after else None


def _channels(maps: Array) -> NDArray[np.float64]:
    """(3, values) of maps (N, 3, H, W) or (N, H, W, 3)."""
    order = (1, 0, 2, 3) if maps.shape[1] == 3 else (3, 0, 1, 2)
    rows: NDArray[np.float64] = maps.transpose(order).reshape(3, -1).astype(np.float64)
    return rows
