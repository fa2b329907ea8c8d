"""Rep-Net's memory (Yang et al., CVPR 2022; pruned, Yang et al., AAAI 2023).

The rules are TinyTL's, masks of frozen activations included; what is new is the view by block.
The paper's figures by block have each side module in the block beside which it stands. Its totals
have the first one, which reads the image, ahead of the network as the public code runs it: what
that module keeps is then held at the peak.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress, groupby
from operator import not_
from typing import ClassVar

from pocketune.papers.conventions.memory import LayerMemory, PublishedMemory
from pocketune.papers.conventions.tinytl import TinyTLMemory
from pocketune.papers.trace import Call, Walk


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
    """Rep-Net's convention for the memory of a step.

    Attributes:
        image_module_first: count the side module that reads the image ahead of the network.
    """

    name: ClassVar[str] = "repnet"
    image_module_first: bool = False

    def measure(self, walk: Walk, batch: int = 8) -> PublishedMemory:
        """Memory of a step of `batch` samples; see `by_block`."""
        if self.image_module_first:
            walk = replace(walk, calls=_image_module_first(walk))
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


def _image_module_first(walk: Walk) -> tuple[Call, ...]:
    """The calls of side branches that read the image, then all others."""
    modules = walk.network.named_modules()
    readers = tuple(f"{path}." for path, m in modules if getattr(m, "reads_image", False) is True)
    reading = [f"{call.path}.".startswith(readers) for call in walk.calls]
    return (*compress(walk.calls, reading), *compress(walk.calls, map(not_, reading)))
