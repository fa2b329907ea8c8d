"""Networks from ONNX files, as modules that every method understands."""

from pocketune.onnx_import.load import load_onnx

__all__ = ["load_onnx"]
