"""Rep-Net's memory (Yang et al., CVPR 2022; pruned, Yang et al., AAAI 2023).

The rules are TinyTL's, masks of frozen activations included; what is new is the view by block.
A side module counts where it runs, in the block beside which it stands. (The public code runs the
first one ahead of the network: what that keeps is then held at the peak of all blocks.)
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

from pocketune.accounting.conventions.memory import LayerMemory, PublishedMemory
from pocketune.accounting.conventions.tinytl import TinyTLMemory
from pocketune.accounting.walk import Walk


@dataclass(frozen=True)
class BlockMemory:
    """A block's memory for one sample, in bytes.

    Attributes:
        path: name of the block.
        temporary_bytes: the most that one of its layers needs while it runs.
        cumulative_bytes: what has been kept for the backward pass when the block is done.
        peak_bytes: the most that is held at once while the block runs.
    """

    path: str
    temporary_bytes: int
    cumulative_bytes: int
    peak_bytes: int


@dataclass(frozen=True)
class RepNetMemory:
    """Rep-Net's convention for the memory of a step."""

    name: ClassVar[str] = "repnet"

    def measure(self, walk: Walk, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples; see `by_block`."""
        return replace(TinyTLMemory().measure(walk, batch), convention=self.name)


def by_block(memory: PublishedMemory) -> tuple[BlockMemory, ...]:
    """The memory of each block, in the order in which they run; layers outside are left out."""
    groups = groupby(memory.layers, key=lambda layer: layer.block)
    return tuple(_block(path, layers) for path, layers in groups if path is not None)


def _block(path: str, layers: Iterable[LayerMemory]) -> BlockMemory:
    layers = list(layers)
    return BlockMemory(
        path=path,
        temporary_bytes=max(layer.temporary_bytes for layer in layers),
        cumulative_bytes=layers[-1].cumulative_bytes,
        peak_bytes=max(layer.peak_bytes for layer in layers),
    )
