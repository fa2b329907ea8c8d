"""The losses of tasks, in PyTorch and in ONNX: one file for each task."""

from pocketune.objectives.attributes import BinaryCrossEntropy
from pocketune.objectives.base import OBJECTIVES, Objective, objective_of, register_objective
from pocketune.objectives.classification import CrossEntropy
from pocketune.objectives.segmentation import PixelCrossEntropy

__all__ = [
    "OBJECTIVES",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Objective",
    "PixelCrossEntropy",
    "objective_of",
    "register_objective",
]
