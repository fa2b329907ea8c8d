"""Between the sub-networks of a space and their genes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pocketune.errors import PocketuneError
from pocketune.extractor.genome import Genes, Genome
from pocketune.supernet import Space, SubnetConfig


def genome_of(space: Space, size: int | None = None) -> Genome:
    """The choices of a space; those of its modules are not searched for, as in the paper.

    Args:
        space: The sub-networks.
        size: The only image size; None for all of the space.

    Raises:
        PocketuneError: The space does not have this image size.
    """
    if size is not None and size not in space.sizes:
        known = ", ".join(map(str, space.sizes))
        raise PocketuneError(
            f"the supernet has no images of {size} px: choose a size of {known}, or leave it out"
        )
    return Genome(
        sizes=space.sizes if size is None else (size,),
        depths=space.depths,
        kernels=space.kernels,
        expansions=space.expansions,
        stages=len(space.largest.depths),
        dense=space.first == "reduced",
    )


def config_of(space: Space, genome: Genome, row: Genes) -> SubnetConfig:
    """The sub-network of genes (G,), with the largest modules of the space."""
    size, depths, kernels, expansions = (part[0] for part in genome.parts(row[None]))
    largest = space.largest
    return space.canonical(
        SubnetConfig(
            depths=tuple(genome.depths[each] for each in depths),
            kernels=tuple(genome.kernels[each] for each in kernels),
            expansions=tuple(genome.expansions[each] for each in expansions),
            module_groups=largest.module_groups,
            module_kernels=largest.module_kernels,
            size=genome.sizes[size],
        )
    )


def genes_of(genome: Genome, configs: Iterable[SubnetConfig]) -> Genes:
    """The genes (N, G) of sub-networks."""
    rows = [
        [
            genome.sizes.index(config.size),
            *map(genome.depths.index, config.depths),
            *map(genome.kernels.index, config.kernels),
            *map(genome.expansions.index, config.expansions),
        ]
        for config in configs
    ]
    return np.array(rows, np.int8).reshape(len(rows), len(genome.choices))
