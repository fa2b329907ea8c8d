"""Reproducible random numbers of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Seed PyTorch's generator of the CPU in the context, and restore its state after it."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield
