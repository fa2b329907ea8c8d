"""Training an adapted network in eager PyTorch."""

from pocketune.eager.calibrate import calibrate, input_formats, observe_formats

__all__ = [
    "calibrate",
    "input_formats",
    "observe_formats",
]
