"""The memory of fine-tuning, block by block."""

from dataclasses import dataclass

from torch import nn

from pocketune.papers import published_memory
from pocketune.papers.conventions.memory import PublishedMemory
from pocketune.papers.conventions.repnet import BlockMemory, by_block


@dataclass(frozen=True)
class MemoryProfile:
    """What one image takes while a network is fine-tuned, in bytes.

    Attributes:
        blocks: temporary, cumulative and peak memory of each block, in their order.
        cumulative_bytes: what is kept for the backward pass when the forward pass is done.
    """

    blocks: tuple[BlockMemory, ...]
    cumulative_bytes: int

    @classmethod
    def of(cls, memory: PublishedMemory) -> "MemoryProfile":
        """By block, what was measured layer by layer."""
        return cls(by_block(memory), memory.saved_bytes)

    @property
    def peak(self) -> BlockMemory:
        """The block at which most is held at once."""
        return max(self.blocks, key=lambda block: block.peak_bytes)

    def block(self, path: str) -> BlockMemory:
        """The block of that path."""
        return next(block for block in self.blocks if block.path == path)

    def above(self, target_bytes: float) -> tuple[str, ...]:
        """Paths of the blocks at which more than the target is held."""
        return tuple(b.path for b in self.blocks if b.peak_bytes > target_bytes)

    def sensitive(self, target_bytes: float) -> tuple[str, ...]:
        """Paths of the blocks whose temporary memory alone is above the target."""
        return tuple(b.path for b in self.blocks if b.temporary_bytes > target_bytes)


def profile_memory(network: nn.Module, *, size: int = 224) -> MemoryProfile:
    """Memory by block of an adapted network, as Rep-Net's papers count it.

    Equations 1 to 6 of the paper on Rep-Net with a pruned backbone: a block's temporary memory is
    the most that the input and output of one of its layers take; its cumulative memory is what
    all layers up to its end keep for the backward pass; its peak is the most that temporary
    memory, what was kept before and the shortcut's input take together.

    Args:
        network: as `adapt` returns it.
        size: side of the images, in pixels.

    Raises:
        PocketuneError: as `published_memory` does.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", classes=10)
        >>> profile = profile_memory(pocketune.adapt(network, pocketune.RepNet()))
        >>> profile.peak.path, profile.peak.peak_bytes, profile.cumulative_bytes
        ('features.2', 5720064, 1532912)
    """
    return MemoryProfile.of(published_memory(network, "repnet", batch=1, size=size))
