"""Chain filtered convolutions, which then pass their gradients on in patches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.filtering import SLOPES, FilteredConv2d, PooledActivation, PooledBatchNorm2d
from pocketune.layers import FrozenBatchNorm2d
from pocketune.networks.anatomy.anatomy import Anatomy, known_anatomy
from pocketune.networks.anatomy.blocks import Layer
from pocketune.networks.architectures.backbone import Backbone
from pocketune.networks.copies import copy_network, gradients_on
from pocketune.networks.probe import usual_size
from pocketune.seeding import seeded
from pocketune.surgery.swap import swap

Link = tuple[Layer, Layer]
"""A layer, and the only one that reads its output."""

_SIZE = 64
"""Side of the images for a trial forward pass, where a network takes them; larger ones take longer.

If the pass fails, the network is not changed.
"""


@gradients_on()
def chain_filters(network: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Chain consecutive filtered convolutions wherever the gradients stay the same.

    Two convolutions can be chained if they have the same patch size and alignment and the second
    keeps the size, apart from its stride. Between them there may be a norm on running statistics
    with a frozen weight and one of the activations in `pocketune.filtering.SLOPES`, or the border
    of two blocks after a linear bottleneck. Squeeze-excite, norms on batch statistics, sums before
    an activation, concatenated and resized maps end a chain.

    Args:
        network: Changed in place, unless its blocks are not all rows of convolutions.

    Returns:
        The chains, each the paths of its convolutions in the order in which they run.
    """
    body = known_anatomy(network)
    if body is None or not all(block.is_row and block.features is None for block in body.blocks):
        return ()
    links = [*_links(body, _read_by_head(network)), *_links_in_head(network, body)]
    links = [link for link in links if _fits(network, *link)]
    links = _closed(network, body, links)
    if not links or not _runs(network, links):
        return ()
    _apply(network, links)
    return tuple(_chains(links))


def _read_by_head(network: nn.Module) -> tuple[str, ...]:
    """Paths of the parts of backbones whose feature maps a decode head reads."""
    return tuple(
        f"{path}.{tap}."
        for path, module in network.named_modules()
        if isinstance(module, Backbone)
        for tap in module.taps
    )


def _links(body: Anatomy, taps: tuple[str, ...]) -> Iterator[Link]:
    """Neighbors inside a block, and across the border of two blocks if the first ends linearly.

    A block in `taps` has another reader.
    """
    for block in body.blocks:
        for link in pairwise(block.main):
            if block.squeeze_excite is None or link[0].role != "depthwise":
                yield link
    for before, after in pairwise([*(block.main for block in body.blocks), body.feature_fusion]):
        tapped = before[-1].conv.startswith(taps) if taps else False
        if before[-1].activation is None and after and not tapped:
            yield before[-1], after[0]


def _links_in_head(network: nn.Module, body: Anatomy) -> Iterator[Link]:
    """Convolutions of neighbors in an `nn.Sequential`, where nothing else reads the first one."""
    for first, second in pairwise(body.decode_head):
        a, b = first.conv.split("."), second.conv.split(".")
        shared = len(list(takewhile(lambda names: names[0] == names[1], zip(a, b, strict=False))))
        row = network.get_submodule(".".join(a[:shared]))
        if type(row) is nn.Sequential and int(b[shared]) == int(a[shared]) + 1:
            yield first, second


def _fits(network: nn.Module, first: Layer, second: Layer) -> bool:
    """Whether the gradient between two layers may stay in patches."""
    a, b = (network.get_submodule(layer.conv) for layer in (first, second))
    if not (isinstance(a, FilteredConv2d) and type(b) is FilteredConv2d):
        return False
    if (a.patch, a.alignment) != (b.patch, b.alignment) or not _keeps_places(b):
        return False
    norm = network.get_submodule(first.norm) if first.norm else None
    if isinstance(norm, FrozenBatchNorm2d):
        if norm.weight.requires_grad:
            return False
    elif norm is not None:
        return False
    return not first.activation or type(network.get_submodule(first.activation)) in SLOPES


def _keeps_places(conv: FilteredConv2d) -> bool:
    """Whether the patches of its input begin where those of its output do, at any size."""
    if conv.same_padding or isinstance(conv.padding, str) or conv.padding_mode != "zeros":
        return False
    centered = all(
        k % 2 and 2 * pad == step * (k - 1)
        for k, pad, step in zip(conv.kernel_size, conv.padding, conv.dilation, strict=True)
    )
    return centered and (conv.alignment != "reference" or conv.stride == (1, 1))


def _closed(network: nn.Module, body: Anatomy, links: list[Link]) -> list[Link]:
    """The links without those between blocks whose map is added to one that is not pooled."""
    blocks = body.blocks
    while True:
        linked = {first.conv for first, _ in links}
        leaves = [block.main[-1].conv in linked for block in blocks]
        dropped = {
            block.main[-1].conv
            for i, block in enumerate(blocks)
            if leaves[i] and not _sums_are_pooled(network, body, i, leaves)
        }
        if not dropped:
            return links
        links = [(first, second) for first, second in links if first.conv not in dropped]


def _sums_are_pooled(network: nn.Module, body: Anatomy, i: int, leaves: list[bool]) -> bool:
    """Whether block i's output is a sum of pooled maps, and the sum with the next block's too."""
    blocks = body.blocks
    if blocks[i].residual and leaves[i - 1 : i] != [True] and _trained_before(network, body, i):
        return False
    return not (i + 1 < len(blocks) and blocks[i + 1].residual and not leaves[i + 1])


def _trained_before(network: nn.Module, body: Anatomy, i: int) -> bool:
    stem = (layer.conv for layer in body.stem)
    return any(
        parameter.requires_grad
        for path in (*stem, *(block.name for block in body.blocks[:i]))
        for parameter in network.get_submodule(path).parameters()
    )


def _runs(network: nn.Module, links: list[Link]) -> bool:
    """Whether the network's own code works with pooled maps at these links.

    Both modes are tried: some code, such as stochastic depth, runs only in training.
    """
    probe, size = copy_network(network), usual_size(network, _SIZE)
    _apply(probe, links)
    weight = next(probe.parameters())
    try:
        with seeded():  # dropout leaves the caller's random numbers as they are
            for training in (False, True):
                probe.train(training)(weight.new_zeros(2, 3, size, size))
    except (PocketuneError, RuntimeError, TypeError, AttributeError):
        return False
    return True


def _apply(network: nn.Module, links: list[Link]) -> None:
    for first, _ in links:
        network.get_submodule(first.conv).passes_pooled = True  # type: ignore[assignment]
    norms = {first.norm for first, _ in links if first.norm}
    activations = {first.activation for first, _ in links if first.activation}
    swap(network, dict.fromkeys(sorted(norms), PooledBatchNorm2d.from_batch_norm))
    swap(network, dict.fromkeys(sorted(activations), PooledActivation))


def _chains(links: list[Link]) -> Iterator[tuple[str, ...]]:
    following = {first.conv: second.conv for first, second in links}
    ends = set(following.values())
    for start in (conv for conv in following if conv not in ends):
        chain = [start]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        yield tuple(chain)
