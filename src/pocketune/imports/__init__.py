"""Networks from ONNX files, as modules that every method understands."""

from pocketune.imports.load import load_onnx

__all__ = ["load_onnx"]
