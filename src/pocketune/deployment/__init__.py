"""Trained models in fewer bits, and for other runtimes."""

from pocketune.deployment.agreement import Agreement
from pocketune.deployment.reduced import export_reduced
from pocketune.deployment.result import Reduced
from pocketune.deployment.tflite import export_tflite

__all__ = ["Agreement", "Reduced", "export_reduced", "export_tflite"]
