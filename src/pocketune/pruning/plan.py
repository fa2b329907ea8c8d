"""Planning which blocks to prune for a memory target, and by how much."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from torch import Tensor, nn

from pocketune.device.memory.sizes import parse_size
from pocketune.errors import PocketuneError
from pocketune.layers.group_norm import GroupNorm, group_size
from pocketune.methods import Method, RepNet, TinyTL, adapt
from pocketune.networks import about, anatomy
from pocketune.networks.copies import copy_network, copy_shapes
from pocketune.papers import published_memory
from pocketune.papers.counts import PublishedMemory
from pocketune.pruning.profile import MemoryProfile, PeakModel
from pocketune.surgery import prune
from pocketune.surgery.channels import FEWEST, hidden_channels, narrow
from pocketune.surgery.prune import require_unpruned

CUMULATIVE = "cumulative"


@dataclass(frozen=True)
class PruningPlan:
    """The blocks to prune, and how many of their channels stay.

    Attributes:
        target_bytes: Limit of the memory of each block, for one image.
        channels: For each pruned block, the number of its hidden channels before and after.
        before: The memory of the unpruned network, by block.
        after: The memory of the pruned network, by block.
    """

    target_bytes: int
    channels: dict[str, tuple[int, int]]
    before: MemoryProfile
    after: MemoryProfile

    @property
    def ratios(self) -> dict[str, float]:
        """Share of the hidden channels to remove, by block: the argument of `prune`."""
        return {block: 1 - left / all_ for block, (all_, left) in self.channels.items()}


def prune_for_memory(
    network: nn.Module,
    target: str | int = CUMULATIVE,
    *,
    importance: str = "l2",
    batches: Iterable[Tensor] | None = None,
    size: int = 224,
    method: Method | None = None,
) -> nn.Module:
    """A smaller copy of `network` whose sensitive blocks take no more memory than the target.

    Args:
        network: A network that is not adapted yet; it stays unchanged.
        target: See `plan_pruning`.
        importance: How channels are ranked, `"l2"` or `"weight"`; see `prune`.
        batches: Normalized images (N, 3, H, W), for `"l2"`.
        size: Side of the images for training, in pixels.
        method: The method of the later fine-tuning; None stands for `RepNet()`, or `TinyTL()`
            for a network with lite residual modules.

    Returns:
        An ordinary network: adapt it to any method, save it with `save_network`.

    Raises:
        PocketuneError: As `plan_pruning` and `prune` do.

    Example:
        >>> from pocketune import about, create_network
        >>> network = create_network("mobilenet_v2", classes=10)
        >>> about(prune_for_memory(network, 2_000_000, importance="weight")).config.hidden
        {'features.1': 22, 'features.2': 22, 'features.3': 86, 'features.4': 110}
    """
    plan = plan_pruning(network, target, size=size, method=method)
    return prune(network, plan.ratios, importance=importance, batches=batches)


def plan_pruning(
    network: nn.Module,
    target: str | int = CUMULATIVE,
    *,
    size: int = 224,
    method: Method | None = None,
) -> PruningPlan:
    """Find the sensitive blocks, and for each the smallest ratio that suffices.

    The peak of a block is its temporary memory, what earlier blocks have kept for the backward
    pass, and the input that its own shortcut holds. As many hidden channels stay as fit into the
    target. With a target in bytes, every block whose peak is above it is sensitive, so no block
    exceeds the target in the end. With `"cumulative"`, as in the paper, a block is sensitive if its
    temporary memory by itself is above the target. If the method adds group norms, numbers of
    channels that these cannot divide are skipped.

    Args:
        network: A network that is not adapted yet; it stays unchanged.
        target: Bytes for one image, such as 2_000_000 or `"2MB"`, or `"cumulative"`: the memory
            that the whole network keeps for the backward pass.
        size: Side of the images, in pixels.
        method: The method of the later fine-tuning; None stands for `RepNet()`, or `TinyTL()`
            for a network with lite residual modules.

    Raises:
        PocketuneError: The target is invalid or cannot be reached, and the message names the block
            that sets the floor; or the network is pruned already.
    """
    require_unpruned(network)
    wanted = None if target == CUMULATIVE else _limit(target)
    method = method or _usual_method(network)
    shapes = copy_shapes(network)
    full = _measure(shapes, {}, method, size)
    before = MemoryProfile.of(full)
    counts = _hidden_counts(shapes, (block.name for block in before.blocks))
    least = _fewest(shapes, counts, method, size)
    if least is None:  # a layer has a fixed width: the channels of its block stay
        counts = {b: n for b, n in counts.items() if _fewest(shapes, [b], method, size)}
        least = _measure(shapes, dict.fromkeys(counts, FEWEST), method, size)
    model = PeakModel(full, least, counts, _owners(shapes, counts))
    if wanted is None:
        limit = before.cumulative_kept_bytes
        sensitive = before.sensitive(limit)
    else:
        limit = wanted
        sensitive = before.above(limit)
    choices = _choices(shapes, counts, method)
    left, failed = model.fit(sensitive, choices, limit)
    if failed is not None:
        floor, block = model.floor(before, choices)
        how = "" if block in choices else ", which cannot be pruned"
        raise PocketuneError(
            f"the target of {limit:,} bytes an image cannot be reached by pruning: the floor is "
            f"{floor:,} bytes, set by block {block}{how}; give that or more"
        )
    after = MemoryProfile.of(_measure(shapes, left, method, size))
    return PruningPlan(limit, {b: (counts[b], n) for b, n in left.items()}, before, after)


def _usual_method(network: nn.Module) -> Method:
    config = about(network).config
    has_modules = config is not None and bool(config.branches)
    return TinyTL() if has_modules else RepNet()


def _limit(target: str | int) -> int:
    try:
        return parse_size(target)
    except PocketuneError as error:
        raise PocketuneError(f"{error}; or {CUMULATIVE!r}") from error


def _hidden_counts(shapes: nn.Module, blocks: Iterable[str]) -> dict[str, int]:
    """Hidden channels of the blocks that can be pruned."""
    counts, body = {}, anatomy(shapes)
    for block in blocks:
        with suppress(PocketuneError):
            counts[block] = hidden_channels(shapes, block, body)[0].count(shapes)
    return {block: count for block, count in counts.items() if count > FEWEST}


def _fewest(
    shapes: nn.Module, blocks: Iterable[str], method: Method, size: int
) -> PublishedMemory | None:
    """Memory with the fewest hidden channels in these blocks; None if the network cannot run."""
    try:
        return _measure(shapes, dict.fromkeys(blocks, FEWEST), method, size)
    except PocketuneError:
        return None


def _choices(
    shapes: nn.Module, counts: Mapping[str, int], method: Method
) -> dict[str, Sequence[int]]:
    """The numbers of hidden channels that each block may keep.

    If the network has group norms, whole groups stay. If `method` adds some, these must be able to
    divide the numbers.
    """
    adapted, body = adapt(shapes, method), anatomy(shapes)
    choices: dict[str, Sequence[int]] = {}
    for block, count in counts.items():
        sets = hidden_channels(shapes, block, body)
        if (group := sets[0].group(shapes)) > 1:
            choices[block] = range(group, count + 1, group)
            continue
        norms = [layer.norm for hidden in sets for layer in hidden.makers if layer.norm is not None]
        grouped = any(isinstance(adapted.get_submodule(norm), GroupNorm) for norm in norms)
        every = range(FEWEST, count + 1)
        choices[block] = [n for n in every if _has_groups(n)] if grouped else every
    return choices


def _has_groups(channels: int) -> bool:
    try:
        group_size(channels)
    except PocketuneError:
        return False
    return True


def _measure(
    shapes: nn.Module, counts: dict[str, int], method: Method, size: int
) -> PublishedMemory:
    """Memory of the network with these numbers of hidden channels in some blocks."""
    narrowed = copy_network(shapes)
    narrow(narrowed, counts)
    return published_memory(adapt(narrowed, method), "repnet", batch=1, size=size)


def _owners(shapes: nn.Module, blocks: Iterable[str]) -> dict[str, str]:
    """The block whose hidden channels a layer outside of it produces, by the layer's path."""
    body = anatomy(shapes)
    producers = [(hidden_channels(shapes, block, body)[0].producer, block) for block in blocks]
    return {
        path: block
        for producer, block in producers
        for path in producer.paths
        if not path.startswith(f"{block}.")
    }
