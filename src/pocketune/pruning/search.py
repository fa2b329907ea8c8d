"""Prune the few blocks whose temporary memory sets the peak, and no more than it takes."""

import copy
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from torch import Tensor, nn

from pocketune.accounting import published_memory
from pocketune.accounting.conventions.memory import PublishedMemory
from pocketune.device.size import format_size, parse_size
from pocketune.errors import PocketuneError
from pocketune.methods import Method, RepNet, adapt
from pocketune.networks.hidden import FEWEST, hidden_channels, narrow
from pocketune.pruning.model import PeakModel
from pocketune.pruning.profile import MemoryProfile
from pocketune.surgery import prune
from pocketune.surgery.prune import require_unpruned

CUMULATIVE = "cumulative"


@dataclass(frozen=True)
class PruningPlan:
    """How much to remove of which blocks.

    Attributes:
        target_bytes: what the memory of each pruned block is brought under, for one image.
        channels: for each pruned block how many hidden channels it has and how many stay.
        before: the memory of the whole network, by block.
        after: that of the pruned one.
    """

    target_bytes: int
    channels: dict[str, tuple[int, int]]
    before: MemoryProfile
    after: MemoryProfile

    @property
    def ratios(self) -> dict[str, float]:
        """Share of the hidden channels to remove, by block: what `prune` takes."""
        return {block: 1 - left / all_ for block, (all_, left) in self.channels.items()}


def prune_for_memory(
    network: nn.Module,
    target: str | int = CUMULATIVE,
    *,
    importance: str = "l2",
    images: Iterable[Tensor] | None = None,
    size: int = 224,
    method: Method | None = None,
) -> nn.Module:
    """A smaller copy of `network` whose sensitive blocks take no more memory than the target.

    Args:
        network: a network that is not adapted yet; it stays as it is.
        target: see `plan_pruning`.
        importance: by what to choose channels, `"l2"` or `"weight"`; see `prune`.
        images: batches of normalised images (N, 3, H, W) to choose by, for `"l2"`.
        size: side of the images to be trained on, in pixels.
        method: by what the network will be fine-tuned; `RepNet()` where none is given.

    Returns:
        An ordinary network: adapt it to any method, save it with `save_network`.

    Raises:
        PocketuneError: as `plan_pruning` and `prune` do.

    Example:
        >>> from pocketune.networks import create_network
        >>> network = create_network("mobilenet_v2", classes=10)
        >>> prune_for_memory(network, 2_000_000, importance="weight").config.hidden
        {'features.1': 23, 'features.2': 22, 'features.3': 87, 'features.4': 120}
    """
    plan = plan_pruning(network, target, size=size, method=method)
    return prune(network, plan.ratios, importance=importance, images=images)


def plan_pruning(
    network: nn.Module,
    target: str | int = CUMULATIVE,
    *,
    size: int = 224,
    method: Method | None = None,
) -> PruningPlan:
    """Find the sensitive blocks, and for each the smallest ratio that suffices.

    A block is sensitive if its temporary memory alone is above the target. As many of its hidden
    channels stay as keep its peak - temporary memory, what earlier blocks have kept for the
    backward pass, and the input that its own shortcut holds - within the target.

    Args:
        network: a network that is not adapted yet; it stays as it is.
        target: bytes for one image, such as 2_000_000 or `"2MB"`, or `"cumulative"`: what the
            whole network keeps for the backward pass.
        size: side of the images, in pixels.
        method: by what the network will be fine-tuned; `RepNet()` where none is given.

    Raises:
        PocketuneError: if the target cannot be reached, naming the block that sets the floor; for
            a network that is pruned already; for a target that is none.
    """
    require_unpruned(network)
    method = method or RepNet()
    shapes = copy.deepcopy(network).to("meta")
    full = _measure(shapes, {}, method, size)
    before = MemoryProfile.of(full)
    limit = _bytes(target, before)
    sensitive = before.sensitive(limit)
    counts = {block: _count(shapes, block, before, limit) for block in sensitive}
    least = _measure(shapes, dict.fromkeys(sensitive, FEWEST), method, size)
    model = PeakModel(full, least, counts, _owners(shapes, sensitive))
    left = dict(counts)
    for block, count in counts.items():
        fitting = range(FEWEST, count + 1)

        def peak(channels: int, block: str = block) -> float:
            return model.peak(block, {**left, block: channels})

        place = bisect_right(fitting, limit, key=peak)
        if place == 0:
            how = f"with {FEWEST} hidden channels left"
            raise _out_of_reach(limit, block, ceil(peak(FEWEST)), how)
        left[block] = fitting[place - 1]
    after = MemoryProfile.of(_measure(shapes, left, method, size))
    channels = {block: (counts[block], left[block]) for block in counts}
    return PruningPlan(limit, channels, before, after)


def _bytes(target: str | int, before: MemoryProfile) -> int:
    return before.cumulative_bytes if target == CUMULATIVE else parse_size(target)


def _measure(
    shapes: nn.Module, counts: dict[str, int], method: Method, size: int
) -> PublishedMemory:
    """Memory of the network with so many hidden channels left in some blocks."""
    narrowed = copy.deepcopy(shapes)
    narrow(narrowed, counts)
    return published_memory(adapt(narrowed, method), "repnet", batch=1, size=size)


def _owners(shapes: nn.Module, blocks: Iterable[str]) -> dict[str, str]:
    """By the path of a layer outside of a block, the block whose hidden channels it makes."""
    producers = [(hidden_channels(shapes, block)[0].producer, block) for block in blocks]
    return {
        path: block
        for producer, block in producers
        for path in (producer.conv, producer.norm, producer.activation)
        if path is not None and not path.startswith(f"{block}.")
    }


def _count(shapes: nn.Module, block: str, before: MemoryProfile, limit: int) -> int:
    """Hidden channels of a block, or the reason why the target cannot be reached."""
    try:
        return hidden_channels(shapes, block)[0].count(shapes)
    except PocketuneError as error:
        memory = before.block(block).peak_bytes
        raise _out_of_reach(limit, block, memory, f"as it is, and {error}") from error


def _out_of_reach(limit: int, block: str, floor: int, how: str) -> PocketuneError:
    return PocketuneError(
        f"the target of {format_size(limit)} an image cannot be reached: block {block} takes "
        f"{format_size(floor)} {how}; give a target of {floor:,} bytes or more"
    )
