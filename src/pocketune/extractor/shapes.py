"""The sizes of many sub-networks at once: weights, maps and multiplications, from shapes alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.extractor.genome import Genes, Genome
from pocketune.extractor.predictor import Values
from pocketune.networks.architectures.parts import make_divisible
from pocketune.supernet import Space


@dataclass(frozen=True, eq=False)
class Tables:
    """Sizes of every block, by the choices of its genes.

    Attributes:
        genome: The choices.
        weights: Values of its kernels (B, kernels, expansions).
        biases: Values of its norms' biases (B, expansions).
        maps: Values of an image's maps (sizes, B, expansions, 4): the block's input, the hidden
            maps before and behind its stride, and the output.
        macs: Multiplications for an image (sizes, B, kernels, expansions), without modules.
    """

    genome: Genome
    weights: Values
    biases: Values
    maps: Values
    macs: Values

    @classmethod
    def of(cls, space: Space, genome: Genome) -> Tables:
        """The tables of a space."""
        places = [space.place(block) for block in range(genome.blocks)]
        inputs = np.array([each.inputs for each in places], float)[:, None]
        outputs = np.array([each.outputs for each in places], float)[:, None]
        reduced = np.array([each.reduced for each in places])[:, None]
        strides = np.array([each.stride for each in places])
        hidden = np.array(
            [[make_divisible(each.inputs * e) for e in genome.expansions] for each in places], float
        )
        squares = np.array(genome.kernels, float)[:, None] ** 2
        # TinyTL's reduced block has a dense 3x3 kernel in place of a 1x1 and a depthwise one.
        expand = np.where(reduced, 9, 1) * inputs * hidden
        spatial = np.where(reduced, 0, hidden)[:, None] * squares
        project = hidden * outputs
        entering = np.array([_sides(size, strides) for size in genome.sizes])
        before = (entering.astype(float) ** 2)[:, :, None]
        after = ((-(-entering // strides)).astype(float) ** 2)[:, :, None]
        widened = np.where(reduced, after, before)
        given = np.broadcast_to(inputs * before, (*before.shape[:2], hidden.shape[1]))
        left = np.broadcast_to(outputs * after, given.shape)
        return cls(
            genome,
            weights=expand[:, None] + spatial + project[:, None],
            biases=np.where(reduced, 1, 2) * hidden + outputs,
            maps=np.stack([given, np.where(reduced, 0, hidden) * before, hidden * after, left], -1),
            macs=(expand * widened)[:, :, None] + (spatial + project[:, None]) * after[:, :, None],
        )

    def features(self, genes: Genes) -> Values:
        """What memory and time are made of: (N, F), for a linear model.

        Of the maps that are held at once, those of one block set the peak: their largest sums over
        the blocks are given, with the bits that the blocks before keep for the backward pass.
        """
        size, _, kernels, expansions = self.genome.parts(genes)
        runs = self.genome.active(genes)
        block = np.arange(self.genome.blocks)
        maps = self.maps[size[:, None], block, expansions] * runs[:, :, None]
        given, before, after, left = np.moveaxis(maps, -1, 0)
        kept = np.cumsum((before + after) / 32, axis=1)
        held = (before + after, given + before, after + left)
        sums = (
            kept[:, -1],
            (self.weights[block, kernels, expansions] * runs).sum(axis=1),
            (self.biases[block, expansions] * runs).sum(axis=1),
            (self.macs[size[:, None], block, kernels, expansions] * runs).sum(axis=1),
            maps.sum(axis=(1, 2)),
            runs.sum(axis=1),
            np.array(self.genome.sizes, float)[size] ** 2,
        )
        return np.stack([*((each + kept).max(axis=1) for each in held), *sums], axis=1)


def _sides(size: int, strides: NDArray[np.int64]) -> list[int]:
    """The side of each block's input, of which the first follows a stem of stride 2."""
    sides = [-(-size // 2)]
    for stride in strides[:-1]:
        sides.append(-(-sides[-1] // int(stride)))
    return sides
