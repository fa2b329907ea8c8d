"""A small space, and a supernet of random values."""

from __future__ import annotations

from typing import Any

import torch

from pocketune.extractor.genome import Genome
from pocketune.extractor.spaces import genome_of
from pocketune.supernet import Space, Supernet


def space(**options: Any) -> Space:
    """A space of 11 blocks, 8 to 32 channels wide."""
    small: dict[str, Any] = {
        "width": 0.1,
        "classes": 3,
        "depths": (1, 2),
        "kernels": (3, 5),
        "expansions": (3, 6),
        "sizes": (32,),
    }
    return Space(**{**small, **options})


def genome(**options: Any) -> Genome:
    return genome_of(space(**options))


def supernet(**options: Any) -> Supernet:
    """A supernet of random values."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(0)
        return Supernet(space(**options))
