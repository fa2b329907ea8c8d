"""Gradients, whatever the caller has turned off."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def gradients_on() -> Iterator[None]:
    """Let autograd record in here, or in the function that this decorates.

    What is copied under `torch.inference_mode` could never be trained, and what looks for
    gradients would find none under it or `torch.no_grad`.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
