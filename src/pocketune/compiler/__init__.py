"""From an adapted network to a kit: trace the training step, lower it to ONNX, check it."""

from pocketune.compiler.builder import GraphBuilder
from pocketune.compiler.check import CompileError
from pocketune.compiler.draft import draft
from pocketune.compiler.pipeline import compile
from pocketune.compiler.quantize.calibration import Calibration

__all__ = [
    "Calibration",
    "CompileError",
    "GraphBuilder",
    "compile",
    "draft",
]
