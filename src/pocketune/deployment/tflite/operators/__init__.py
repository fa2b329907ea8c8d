"""How each operator of ONNX is translated.

Importing this package registers all operators.
"""

from pocketune.deployment.tflite.operators import (
    activations,
    arithmetic,
    layers,
    norms,
    parts,
    shapes,
)
from pocketune.deployment.tflite.translator import Translator

__all__ = ["Translator", "activations", "arithmetic", "layers", "norms", "parts", "shapes"]
