"""The module for each operator of an ONNX file (https://onnx.ai/onnx/operators).

Importing this package registers all operators.
"""

from pocketune.onnx_import.operators import activations, arithmetic, attention, layers, shapes
from pocketune.onnx_import.operators.registry import make_module

__all__ = ["activations", "arithmetic", "attention", "layers", "make_module", "shapes"]
