"""The module for each operator of an ONNX file (https://onnx.ai/onnx/operators).

Importing this package registers all operators.
"""

from pocketune.imports.operators import activations, arithmetic, layers, shapes
from pocketune.imports.operators.registry import make_module

__all__ = ["activations", "arithmetic", "layers", "make_module", "shapes"]
