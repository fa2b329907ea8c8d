"""Small spaces, and supernets whose values are all random."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from pocketune.supernet import Space, SubnetConfig, Supernet

MODULES = {"module_groups": (2, 4), "module_kernels": (3, 5)}


def space(**options: Any) -> Space:
    """A space of 11 blocks, 16 to 48 channels wide."""
    small = {"width": 0.2, "classes": 3, "depths": (1, 2), "sizes": (32, 48)}
    return Space(**{**small, **options})


def supernet(**options: Any) -> Supernet:
    """A supernet with random norms, statistics, modules and matrices."""
    made = Supernet(space(**options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if tensor.is_floating_point() and "classifier" not in name:
                tensor += 0.1 * torch.rand(tensor.shape, generator=generator)
    return made.eval()


def images(size: int = 32, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def configs(of: Space) -> st.SearchStrategy[SubnetConfig]:
    """Any sub-network of a space."""

    def many(choices: tuple[int, ...], count: int) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[st.sampled_from(choices)] * (count if choices else 0))

    return st.builds(
        SubnetConfig,
        depths=many(of.depths, 5),
        kernels=many(of.kernels, of.blocks),
        expansions=many(of.expansions, of.blocks),
        module_groups=many(of.module_groups, of.blocks),
        module_kernels=many(of.module_kernels, of.blocks),
        size=st.sampled_from(of.sizes),
    )


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
