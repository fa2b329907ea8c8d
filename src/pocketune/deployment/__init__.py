"""Trained models in fewer bits, for other runtimes."""

from pocketune.deployment.agreement import Agreement
from pocketune.deployment.reduced import Reduced, export_reduced

__all__ = ["Agreement", "Reduced", "export_reduced"]
