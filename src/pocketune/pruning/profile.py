"""The memory of fine-tuning block by block, as it is and with fewer hidden channels."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from torch import nn

from pocketune.accounting import LayerCost
from pocketune.networks.checks import require_module
from pocketune.papers import by_block, published_memory
from pocketune.papers.counts import PublishedMemory
from pocketune.surgery.channels import FEWEST


@dataclass(frozen=True)
class MemoryProfile:
    """The memory of one image while a network is fine-tuned, in bytes.

    Attributes:
        blocks: Temporary, cumulative and peak memory of each block, in order.
        cumulative_kept_bytes: Memory kept for the backward pass at the end of the forward pass.
    """

    blocks: tuple[LayerCost, ...]
    cumulative_kept_bytes: int

    @classmethod
    def of(cls, memory: PublishedMemory) -> "MemoryProfile":
        """Group by block what was counted layer by layer."""
        return cls(by_block(memory), memory.kept_bytes)

    @property
    def peak(self) -> LayerCost:
        """The block with the highest peak."""
        return max(self.blocks, key=lambda block: block.peak_bytes)

    def block(self, path: str) -> LayerCost:
        """The block of that path."""
        return next(block for block in self.blocks if block.name == path)

    def above(self, target_bytes: float) -> tuple[str, ...]:
        """Paths of the blocks whose peak is above the target."""
        return tuple(b.name for b in self.blocks if b.peak_bytes > target_bytes)

    def sensitive(self, target_bytes: float) -> tuple[str, ...]:
        """Paths of the blocks whose temporary memory by itself is above the target."""
        return tuple(b.name for b in self.blocks if b.temporary_bytes > target_bytes)


def profile_memory(network: nn.Module, *, size: int = 224) -> MemoryProfile:
    """Memory by block of an adapted network, as Rep-Net's papers count it.

    Equations 1 to 6 of the paper on Rep-Net with a pruned backbone. The temporary memory of a block
    is the largest sum of the input and the output of one of its layers. Its cumulative memory is
    what all layers up to its end keep for the backward pass. Its peak is the largest sum of
    temporary memory, memory kept before, and the input of the shortcut.

    Args:
        network: An adapted network.
        size: Side of the images, in pixels.

    Raises:
        PocketuneError: As `published_memory` does.

    Example:
        >>> import pocketune
        >>> network = pocketune.create_network("mobilenet_v2", classes=10)
        >>> profile = profile_memory(pocketune.adapt(network, pocketune.RepNet()))
        >>> profile.peak.name, profile.peak.peak_bytes, profile.cumulative_kept_bytes
        ('features.2', 5720064, 1532912)
    """
    require_module(network)
    return MemoryProfile.of(published_memory(network, "repnet", batch=1, size=size))


class PeakModel:
    """Peak memory of blocks, which is linear in hidden channels layer by layer.

    The memory that a layer needs or keeps is a sum of the sizes of its tensors, and each tensor
    has the hidden channels of one block, or of none. Two measurements therefore determine all
    others: no candidate needs its own trace.

    Args:
        full: The memory with all channels.
        least: The memory with `FEWEST` hidden channels in every block of `counts`.
        counts: Hidden channels of these blocks in `full`.
        owners: For layers outside of a block that produce its hidden channels, the block.
    """

    def __init__(
        self,
        full: PublishedMemory,
        least: PublishedMemory,
        counts: Mapping[str, int],
        owners: Mapping[str, str],
    ) -> None:
        self._layers = list(zip(full.layers, least.layers, strict=True))
        self._end = {layer.block: place + 1 for place, layer in enumerate(full.layers)}
        self._counts = counts
        self._owners = owners

    def peak(self, block: str, channels: Mapping[str, int]) -> float:
        """Peak bytes of one block, given the hidden channels of it and of the blocks before it."""
        peak = kept = 0.0
        for full, least in self._layers[: self._end[block]]:
            owner = self._owners.get(full.name, full.block)
            share = self._share(owner, channels)
            if full.block == block:
                temporary = _between(least.temporary_bytes, full.temporary_bytes, share)
                peak = max(peak, temporary + kept + _shortcut(full))
            kept += _between(least.kept_bytes, full.kept_bytes, share)
            if 0 < share < 1 and least.kept_bytes < full.kept_bytes:
                kept += 1  # masks of one bit are rounded up to bytes: never too little
        return peak

    def fit(
        self, sensitive: Iterable[str], choices: Mapping[str, Sequence[int]], limit: int
    ) -> tuple[dict[str, int], str | None]:
        """The most hidden channels that keep each sensitive block within a limit.

        From front to back, since what a block keeps counts in all later blocks.

        Args:
            sensitive: The blocks, in order.
            choices: The numbers of hidden channels that blocks may have, ascending.
            limit: Bytes of the peak of each sensitive block.

        Returns:
            The blocks that lose channels, with the number that stays; the first block that cannot
            fit.
        """
        counts = {block: possible[-1] for block, possible in choices.items()}
        left: dict[str, int] = {}
        for block in sensitive:

            def peak(channels: int, block: str = block) -> int:
                return ceil(self.peak(block, {**counts, **left, block: channels}))

            candidates = choices.get(block, [FEWEST])
            fitting = bisect_right(candidates, limit, key=peak)
            if fitting == 0:
                return left, block
            if fitting < len(candidates):
                left[block] = candidates[fitting - 1]
        return left, None

    def floor(self, before: MemoryProfile, choices: Mapping[str, Sequence[int]]) -> tuple[int, str]:
        """The smallest limit that all blocks can keep, and the block that sets it.

        Args:
            before: The memory with all channels.
            choices: As for `fit`.
        """
        low, high = 0, before.peak.peak_bytes  # out of reach, within reach
        block = before.peak.name
        while high - low > 1:
            middle = (low + high) // 2
            _, failed = self.fit(before.above(middle), choices, middle)
            low, high, block = (middle, high, failed) if failed else (low, middle, block)
        return high, block

    def _share(self, owner: str | None, channels: Mapping[str, int]) -> float:
        """0 for the fewest channels, 1 for all."""
        if owner is None or owner not in self._counts:
            return 1.0
        return (channels[owner] - FEWEST) / (self._counts[owner] - FEWEST)


def _shortcut(layer: LayerCost) -> int:
    """Bytes that are held in addition to the layer's own and those kept before it."""
    kept_before = layer.cumulative_kept_bytes - layer.kept_bytes
    return layer.peak_bytes - layer.temporary_bytes - kept_before


def _between(least: int, full: int, share: float) -> float:
    return least + (full - least) * share
