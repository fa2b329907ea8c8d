"""Sub-networks of a space as rows of numbers, for sampling, crossing and encoding many at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pocketune.arrays import FloatArray

Genes = NDArray[np.int8]
"""Sub-networks (N, G): in each column, which of a gene's choices is taken."""
Fits = Callable[[Genes], NDArray[np.bool_]]
"""Whether each of the sub-networks (N,) keeps the limits."""

TRIES = 20
"""Draws for a sub-network that keeps the limits, before it is crossed with the smallest one."""


@dataclass(frozen=True)
class Genome:
    """What can be chosen: a gene for the image size, then depths, kernels and expansions.

    Skipped blocks have genes too, without effect.

    Attributes:
        sizes: Sides of the images, in pixels, ascending as all choices.
        depths: Numbers of blocks of an elastic stage.
        kernels: Kernels of a block.
        expansions: Hidden channels of a block over its input channels.
        stages: Number of elastic stages. One block of its own follows them.
        dense: Whether the first block has no depthwise convolution, and therefore one kernel.
    """

    sizes: tuple[int, ...]
    depths: tuple[int, ...] = (2, 3, 4)
    kernels: tuple[int, ...] = (3, 5, 7)
    expansions: tuple[int, ...] = (3, 4, 6)
    stages: int = 5
    dense: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of the largest sub-network."""
        return self.stages * self.depths[-1] + 1

    @property
    def choices(self) -> NDArray[np.int64]:
        """Number of choices (G,) of each gene."""
        counts = [len(self.sizes), *[len(self.depths)] * self.stages]
        counts += [len(self.kernels)] * self.blocks + [len(self.expansions)] * self.blocks
        return np.array(counts)

    @property
    def smallest(self) -> Genes:
        """The sub-network (1, G) of least depth, kernels, expansions and image size."""
        return np.zeros((1, len(self.choices)), np.int8)

    @property
    def largest(self) -> Genes:
        """The sub-network (1, G) of all the largest choices."""
        return (self.choices - 1).astype(np.int8)[None]

    def sample(self, rng: np.random.Generator, count: int) -> Genes:
        """Sub-networks (count, G), uniform and independent in each gene."""
        return rng.integers(self.choices, size=(count, len(self.choices))).astype(np.int8)

    def mutate(self, genes: Genes, rng: np.random.Generator, rate: float) -> Genes:
        """The sub-networks with some choices redrawn.

        With this probability each, a block redraws its kernel and its expansion, a stage its depth,
        and the image size is redrawn.
        """
        others = 1 + self.stages
        redrawn = rng.random((len(genes), others + self.blocks)) < rate
        blocks = redrawn[:, others:]
        redrawn = np.concatenate([redrawn[:, :others], blocks, blocks], axis=1)
        return np.where(redrawn, self.sample(rng, len(genes)), genes)

    def active(self, genes: Genes) -> NDArray[np.bool_]:
        """Which blocks (N, B) run."""
        depths = np.array(self.depths)[genes[:, 1 : 1 + self.stages]]
        inside = np.arange(self.depths[-1]) < depths[:, :, None]
        last = np.ones((len(genes), 1), bool)
        return np.concatenate([inside.reshape(len(genes), self.blocks - 1), last], axis=1)

    def parts(self, genes: Genes) -> tuple[Genes, Genes, Genes, Genes]:
        """Choices of the size (N,), the depths (N, S), the kernels (N, B) and expansions (N, B)."""
        kernels, expansions = np.split(genes[:, 1 + self.stages :], 2, axis=1)
        return genes[:, 0], genes[:, 1 : 1 + self.stages], kernels, expansions

    def canonical(self, genes: Genes) -> Genes:
        """The same sub-networks with the first choice for every gene without effect."""
        size, depths, kernels, expansions = self.parts(genes)
        runs = self.active(genes)
        kernels, expansions = kernels * runs, expansions * runs
        if self.dense:
            kernels[:, 0] = 0
        return np.concatenate([size[:, None], depths, kernels, expansions], axis=1)

    def encode(self, genes: Genes) -> FloatArray:
        """One-hot encodings (N, D): image sizes, then kernels, then expansions of all blocks.

        Both parts of a skipped block are 0, so depths need no entries of their own. Published
        spaces have 127 entries for one image size.
        """
        size, _, kernels, expansions = self.parts(genes)
        runs = self.active(genes)[:, :, None]
        moving = runs.copy()
        if self.dense:
            moving[:, 0] = False
        hot = [
            size[:, None] == np.arange(len(self.sizes)),
            (kernels[:, :, None] == np.arange(len(self.kernels))) & moving,
            (expansions[:, :, None] == np.arange(len(self.expansions))) & runs,
        ]
        flat = [part.reshape(len(genes), math.prod(part.shape[1:])) for part in hot]
        return np.concatenate(flat, axis=1, dtype=np.float32)


def cross(one: Genes, other: Genes, rng: np.random.Generator, share: float = 0.5) -> Genes:
    """Each gene from either of two sub-networks (N, G), with this probability from the other."""
    return np.where(rng.random(one.shape) < share, other, one)


def fitting(genome: Genome, rng: np.random.Generator, count: int, fits: Fits) -> Genes:
    """Random sub-networks (count, G) that keep the limits, of which the smallest one must.

    What does not fit is drawn again. Where nearly nothing fits, the last draws are crossed with
    the smallest sub-network until they do.
    """
    kept = genome.sample(rng, 0)
    for _ in range(TRIES):
        drawn = genome.sample(rng, count)
        kept = np.concatenate([kept, drawn[fits(drawn)]])
        if len(kept) >= count:
            return kept[:count]
    rest = genome.sample(rng, count - len(kept))
    for number in range(TRIES + 1):
        outside = ~fits(rest)
        if not outside.any():
            break
        small = np.broadcast_to(genome.smallest, rest[outside].shape)
        rest[outside] = cross(rest[outside], small, rng, 0.25 if number < TRIES else 1.0)
    return np.concatenate([kept, rest])
