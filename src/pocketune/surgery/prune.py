"""Remove hidden channels from blocks: the network becomes a smaller ordinary one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError, check_choice, real_number
from pocketune.layers import StandardizedConv2d
from pocketune.networks import about, anatomy, set_about
from pocketune.networks.checks import require_network
from pocketune.networks.copies import copy_network
from pocketune.networks.images import image_batches
from pocketune.networks.probe import usual_size, watch_inputs
from pocketune.surgery.channels import FEWEST, Hidden, hidden_channels, keep_channels, narrow
from pocketune.surgery.position import require_same_channels

RANKINGS = ("l2", "weight")


def prune(
    network: nn.Module,
    ratios: Mapping[str, float],
    *,
    importance: str = "l2",
    batches: Iterable[Tensor] | None = None,
) -> nn.Module:
    """A copy of `network` whose blocks have lost the least important of their hidden channels.

    The remaining channels keep their values. Their numbers are in `config.hidden` of the copy, from
    which `create_network` builds the same shapes.

    Args:
        network: A network that is not adapted to a method; it is not changed.
        ratios: Share of the hidden channels to remove, in [0, 1), by the name of the block, as
            in `anatomy(network).blocks`. Of C channels `round(C * (1 - ratio))` stay, at least 2.
            In bottleneck blocks the ratio is that of both inner convolutions. Where a group norm
            follows, whole groups stay, by the mean importance of their channels. A standardized
            kernel is standardized over the inputs that it has left.
        importance: `"l2"` or `"weight"`; see `rank_channels`.
        batches: Normalized images (N, 3, H, W) to rank by, for `"l2"`.

    Raises:
        PocketuneError: A ratio is out of range; a block does not exist, shares its channels or has
            grouped convolutions; the network does not run without the channels of a block, or mixes
            them by their place, tried on an image; the network is pruned or adapted already.

    Example:
        >>> from pocketune import about, create_network
        >>> network = create_network("mobilenet_v2")
        >>> about(prune(network, {"features.2": 0.78}, importance="weight")).config.hidden
        {'features.2': 21}
    """
    _check(network, ratios)
    pruned = copy_network(network)
    body = anatomy(pruned) if ratios else None
    sets = [hidden for block in ratios for hidden in hidden_channels(pruned, block, body)]
    losing = {}
    for hidden in sets:
        channels = hidden.count(pruned)
        left = channels_left(channels, ratios[hidden.block], hidden.group(pruned))
        if left < channels:
            losing[hidden] = left
    shown, batches = _peek(() if batches is None else image_batches(network, batches))
    scores = rank_channels(pruned, list(losing), importance, batches) if losing else []
    kept = {
        hidden: _best(score, count, hidden.group(pruned))
        for (hidden, count), score in zip(losing.items(), scores, strict=True)
    }
    for hidden, places in kept.items():
        keep_channels(pruned, hidden, places)
    counts = {hidden.block: count for hidden, count in losing.items()}
    _try(network, pruned, kept, _an_image(network) if shown is None else shown[:1])
    if (config := about(network).config) is not None:
        set_about(pruned, config=replace(config, hidden=counts))
    return pruned


def channels_left(channels: int, ratio: float, group: int = 1) -> int:
    """The number of channels that stay, in whole groups."""
    groups = round(channels // group * (1 - ratio))
    return max(FEWEST, groups * group, group)


def _best(score: Tensor, count: int, group: int) -> Tensor:
    """The places of the best `count` channels, in order; whole groups, by their mean score."""
    best = score.view(-1, group).mean(1).argsort(descending=True, stable=True)[: count // group]
    places = torch.arange(len(score), device=score.device).view(-1, group)
    return places[best.sort().values].flatten()


def _check(network: nn.Module, ratios: object) -> None:
    require_network(network)
    if not isinstance(ratios, Mapping):
        kind = type(ratios).__name__
        raise PocketuneError(
            f"ratios is of type {kind}; give a ratio for each block, as in {{'features.2': 0.5}}"
        )
    for block, ratio in ratios.items():
        number = real_number(ratio)
        if number is None or not 0 <= number < 1:
            raise PocketuneError(f"the ratio of block {block} must lie in [0, 1), not {ratio!r}")
    if (method := about(network).method) is not None:
        raise PocketuneError(f"the network is adapted to {method}; prune it before adapting it")
    require_unpruned(network)


def _try(
    network: nn.Module, pruned: nn.Module, kept: Mapping[Hidden, Tensor], image: Tensor
) -> None:
    """Check that the pruned network still runs, and that the channels left have their values.

    A layer may depend on the old width. If the original network does not run on such an image,
    nothing is raised.
    """
    if not kept or _failure(network, image) is not None:
        return
    failure = _failure(pruned, image)
    if failure is None:
        require_same_channels(network, pruned, kept, image)
        return
    counts = {hidden.block: len(places) for hidden, places in kept.items()}
    failing = [b for b, n in counts.items() if _failure(_narrowed(network, {b: n}), image)]
    blocks, reason = ", ".join(failing or counts), str(failure).partition("\n")[0]
    raise PocketuneError(
        f"{type(network).__name__} does not run with fewer hidden channels in {blocks}: "
        f"{type(failure).__name__}: {reason}; leave these blocks out"
    ) from failure


def _narrowed(network: nn.Module, channels: Mapping[str, int]) -> nn.Module:
    narrowed = copy_network(network)
    narrow(narrowed, channels)
    return narrowed


def _failure(network: nn.Module, image: Tensor) -> Exception | None:
    try:
        watch_inputs(network, [image], {})
    except Exception as error:  # the network's own code may raise anything
        return error
    return None


def _an_image(network: nn.Module) -> Tensor:
    size = usual_size(network)
    noise = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    return noise.to(next(network.parameters()))


def _peek(batches: Iterable[Tensor]) -> tuple[Tensor | None, Iterable[Tensor]]:
    """The first batch, and all of them again."""
    rest = iter(batches)
    first = next(rest, None)
    return first, rest if first is None else chain((first,), rest)


def require_unpruned(network: nn.Module) -> None:
    """Check that a network is not pruned.

    Raises:
        PocketuneError: It is; the message names the pruned blocks.
    """
    config = about(network).config
    if config is not None and config.hidden:
        raise PocketuneError(
            f"the network is pruned already, in {', '.join(config.hidden)}; prune the original "
            "network with all ratios at once"
        )


def rank_channels(
    network: nn.Module,
    sets: Sequence[Hidden],
    importance: str,
    batches: Iterable[Tensor] = (),
) -> list[Tensor]:
    """Importance of every channel of each set, (C,) float64; more is more important.

    Args:
        network: Not changed.
        sets: The hidden channels to rank.
        importance: `"l2"`, the L2 norm of the channel in the input of the convolution that reads
            it, over all images and pixels; or `"weight"`, the L2 norm of the weights with which
            that convolution reads it. (The weights that produce a channel do not matter if a
            batch norm follows, which undoes their scale.) The paper on pruned Rep-Net takes norms
            within each convolution layer; here expansion, depthwise convolution and projection
            share one set of channels, and the last feature map decides.
        batches: Normalized images (N, 3, H, W), for `"l2"`.

    Raises:
        PocketuneError: The importance is unknown, or `"l2"` has no images.
    """
    check_choice(RANKINGS, importance=importance)
    if importance == "weight":
        return [_weight_norms(network, hidden) for hidden in sets]
    return _activation_norms(network, sets, batches)


def _weight_norms(network: nn.Module, hidden: Hidden) -> Tensor:
    """Norm of a convolution's weights (O, C, k, k) by input channel."""
    conv = network.get_submodule(hidden.consumer.conv)
    weight = conv.kernel() if isinstance(conv, StandardizedConv2d) else conv.get_parameter("weight")
    return weight.detach().double().square().sum((0, 2, 3)).sqrt()


def _activation_norms(
    network: nn.Module, sets: Sequence[Hidden], batches: Iterable[Tensor]
) -> list[Tensor]:
    """Norms of the hidden channels in the input of each consumer, in evaluation mode."""
    sums = [torch.zeros(hidden.count(network), dtype=torch.float64) for hidden in sets]

    watchers = {
        hidden.consumer.conv: partial(_add_squares, total)
        for hidden, total in zip(sets, sums, strict=True)
    }
    if watch_inputs(network, batches, watchers) == 0:
        raise PocketuneError(
            "importance='l2' ranks channels by their values on photos: give a few hundred, or "
            "importance='weight'"
        )
    return [total.sqrt() for total in sums]


def _add_squares(total: Tensor, x: Tensor) -> None:
    total.add_(x.square().sum((0, 2, 3), dtype=torch.float64).cpu())
