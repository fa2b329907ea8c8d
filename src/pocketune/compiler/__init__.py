"""From an adapted network to a kit: trace the training step, lower it to ONNX, check it."""

from pocketune.compiler.calibration import Calibration
from pocketune.compiler.check import CompileError
from pocketune.compiler.kit import compile

__all__ = ["Calibration", "CompileError", "compile"]
