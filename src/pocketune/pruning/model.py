"""A block's peak memory for any number of hidden channels, from two measurements."""

from collections.abc import Mapping

from pocketune.papers.conventions.memory import PublishedMemory
from pocketune.surgery.channels import FEWEST


class PeakModel:
    """Peak memory of blocks, which is linear in hidden channels layer by layer.

    What a layer needs and what it keeps are sums of its tensors' sizes, and each tensor has the
    hidden channels of one block, or of none. Two measurements therefore tell all others: no
    network need be followed again for each candidate.

    Args:
        full: the memory with all channels.
        least: that with `FEWEST` hidden channels in every block of `counts`.
        counts: hidden channels of these blocks in `full`.
        owners: for layers outside of a block that make its hidden channels, the block.
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
        """Peak bytes of one block, with so many hidden channels in it and in those before it."""
        peak = kept = 0.0
        for full, least in self._layers[: self._end[block]]:
            owner = self._owners.get(full.path, full.block)
            share = self._share(owner, channels)
            if full.block == block:
                temporary = _between(least.temporary_bytes, full.temporary_bytes, share)
                peak = max(peak, temporary + kept + full.shortcut_bytes)
            kept += _between(least.saved_bytes, full.saved_bytes, share)
            if 0 < share < 1 and least.saved_bytes < full.saved_bytes:
                kept += 1  # masks of one bit are rounded up to bytes: never too little
        return peak

    def _share(self, owner: str | None, channels: Mapping[str, int]) -> float:
        """0 for the fewest channels, 1 for all."""
        if owner is None or owner not in self._counts:
            return 1.0
        return (channels[owner] - FEWEST) / (self._counts[owner] - FEWEST)


def _between(least: int, full: int, share: float) -> float:
    return least + (full - least) * share
