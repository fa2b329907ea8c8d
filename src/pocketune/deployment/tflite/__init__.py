"""Trained models as TensorFlow Lite flatbuffers, translated from ONNX without TensorFlow."""

from pocketune.deployment.tflite.export import export_tflite

__all__ = ["export_tflite"]
