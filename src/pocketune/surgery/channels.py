"""Hidden channels: channels inside a block that nothing outside reads, so they can be removed.

In an inverted residual they run from the expansion through the depthwise convolution and
squeeze-excite to the projection; in basic and bottleneck blocks from one convolution to the next.
A first block without an expansion takes its hidden channels from the stem.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.layers import GroupNorm, QuantizedConv2d
from pocketune.layers.group_norm import group_size
from pocketune.networks.anatomy.anatomy import Anatomy, anatomy
from pocketune.networks.anatomy.blocks import Block, Layer
from pocketune.networks.anatomy.modules import is_convolution

FEWEST = 2
"""A depthwise convolution of one channel would look like a dense one."""


@dataclass(frozen=True)
class Hidden:
    """One set of hidden channels and the layers that carry it.

    Attributes:
        block: Path of the block.
        producer: The layer whose outputs they are.
        depthwise: The layer that works on them one by one, if there is one.
        squeeze_excite: Path of the module that scales them, if there is one.
        consumer: The layer that reads them, and the only one that does.
    """

    block: str
    producer: Layer
    depthwise: Layer | None
    squeeze_excite: str | None
    consumer: Layer

    @property
    def makers(self) -> tuple[Layer, ...]:
        """The layers whose outputs they are: the producer, and the one that works on them."""
        return (self.producer,) if self.depthwise is None else (self.producer, self.depthwise)

    def count(self, network: nn.Module) -> int:
        """The number of hidden channels."""
        conv = network.get_submodule(self.consumer.conv)
        assert is_convolution(conv)
        return conv.in_channels

    def group(self, network: nn.Module) -> int:
        """How many neighboring channels one group of a group norm has, which stay together or go.

        1 without a group norm.
        """
        norm = network.get_submodule(self.producer.norm) if self.producer.norm else None
        return norm.num_channels // norm.num_groups if isinstance(norm, GroupNorm) else 1


def hidden_channels(
    network: nn.Module, block: str, body: Anatomy | None = None
) -> tuple[Hidden, ...]:
    """The sets of hidden channels of the block at path `block`, first to last.

    Args:
        network: Not changed.
        block: Path of the block.
        body: The anatomy of the network, which takes a while to find; None finds it.

    Raises:
        PocketuneError: The block does not exist, or its channels cannot be removed: they are read
            outside it, or a convolution is grouped or used twice.
    """
    body = body or anatomy(network)
    found = next((known for known in body.blocks if known.name == block), None)
    if found is None:
        names = ", ".join(known.name for known in body.blocks)
        raise PocketuneError(f"there is no block {block!r}; the network has {names}")
    stem = body.stem if found is body.blocks[0] else ()
    scaled_by = found.hidden_squeeze_excite
    if not found.hidden:
        raise PocketuneError(
            f"block {block} cannot be pruned: it is {found.kind}, in which more than one layer "
            "reads what another makes; leave it out"
        )
    sets = tuple(
        Hidden(block, producer or _producer(found, stem), depthwise, scaled_by, consumer)
        for producer, depthwise, consumer in found.hidden
    )
    for hidden in sets:
        _check(network, hidden)
    return sets


def keep_channels(network: nn.Module, hidden: Hidden, keep: Tensor) -> None:
    """Remove all hidden channels except those at the indices `keep`, in place."""
    count = hidden.count(network)
    for layer in hidden.makers:
        conv, *others = layer.paths
        _cut(network.get_submodule(conv), 0, keep)
        for path in others:
            _cut_vectors(network.get_submodule(path), count, keep)
    if hidden.squeeze_excite is not None:
        _, excite = _weighted(network.get_submodule(hidden.squeeze_excite))
        _cut(excite, 0, keep)
    keep_inputs(network, hidden, keep)


def keep_inputs(network: nn.Module, hidden: Hidden, keep: Tensor) -> tuple[str, ...]:
    """Let the layers that sum over hidden channels read those at the indices `keep`, in place.

    Returns:
        The paths of these layers.
    """
    paths = [hidden.consumer.conv]
    if hidden.squeeze_excite is not None:
        names = {m: path for path, m in network.named_modules()}
        paths.append(names[_weighted(network.get_submodule(hidden.squeeze_excite))[0]])
    for path in paths:
        _cut(network.get_submodule(path), 1, keep)
    return tuple(paths)


def narrow(network: nn.Module, channels: Mapping[str, int]) -> None:
    """Keep the given number of hidden channels in each of these blocks, the first ones, in place.

    Raises:
        PocketuneError: A block does not exist, cannot be narrowed or has fewer channels.
    """
    body = anatomy(network) if channels else None
    for block, fewer in channels.items():
        for hidden in hidden_channels(network, block, body):
            count = hidden.count(network)
            if not FEWEST <= fewer <= count:
                raise PocketuneError(
                    f"block {block} has {count} hidden channels and cannot be left with {fewer}; "
                    f"give {FEWEST} to {count}"
                )
            keep_channels(network, hidden, torch.arange(fewer))


def _producer(block: Block, stem: tuple[Layer, ...]) -> Layer:
    """The layer before a block without an expansion, if only the block reads it."""
    if block.residual or not stem:
        where = "its own shortcut" if block.residual else "the block before"
        raise PocketuneError(
            f"block {block.name} cannot be pruned: it has no expansion, and its channels are "
            f"shared with {where}; leave it out"
        )
    return stem[-1]


def _check(network: nn.Module, hidden: Hidden) -> None:
    """Check that channels can be removed: convolutions are dense, norms known, used once."""
    names = Counter(id(module) for _, module in network.named_modules(remove_duplicate=False))
    layers = (*hidden.makers, hidden.consumer)
    for path in (path for layer in layers for path in (layer.conv, layer.norm) if path):
        module = network.get_submodule(path)
        if names[id(module)] > 1:
            raise _refusal(hidden, f"its layer {path} is shared with another place")
        if isinstance(module, nn.GroupNorm) and not isinstance(module, GroupNorm):
            raise _refusal(hidden, f"its norm {path} works on groups of channels")
    if tied := _tied(network, hidden):
        raise _refusal(hidden, f"its {tied} is shared with another place")
    for layer in (hidden.producer, hidden.consumer):
        conv = network.get_submodule(layer.conv)
        if isinstance(conv, QuantizedConv2d):
            raise _refusal(hidden, f"its convolution {layer.conv} is stored in 8 bits")
        if is_convolution(conv) and conv.groups > 1:
            raise _refusal(hidden, f"its convolution {layer.conv} is grouped")


def _tied(network: nn.Module, hidden: Hidden) -> str | None:
    """The first parameter over the hidden channels that belongs to several modules."""
    owners = Counter(id(p) for _, p in network.named_parameters(remove_duplicate=False))
    paths = [path for layer in hidden.makers for path in layer.paths]
    if hidden.squeeze_excite is not None:
        paths.append(hidden.squeeze_excite)
    count = hidden.count(network)
    for path in (*paths, hidden.consumer.conv):
        for name, parameter in network.get_submodule(path).named_parameters(prefix=path):
            if owners[id(parameter)] > 1 and count in parameter.shape:
                return name
    return None


def _refusal(hidden: Hidden, reason: str) -> PocketuneError:
    return PocketuneError(f"block {hidden.block} cannot be pruned: {reason}; leave it out")


def _weighted(module: nn.Module) -> list[nn.Module]:
    """The layers with weights in a squeeze-excite module, in order."""
    return [part for part in module.modules() if isinstance(part, (nn.Linear, nn.Conv2d))]


def _cut(layer: nn.Module, axis: int, keep: Tensor) -> None:
    """Keep outputs (axis 0) or inputs (axis 1) of a convolution or linear layer."""
    depthwise = is_convolution(layer) and layer.groups > 1
    _select(layer, "weight", axis, keep)
    if axis == 0 and layer.bias is not None:
        _select(layer, "bias", 0, keep)
    sizes = ("in_channels", "in_features") if axis else ("out_channels", "out_features")
    for name in (*sizes, *(("in_channels", "groups") if depthwise else ())):
        if hasattr(layer, name):
            setattr(layer, name, len(keep))


def _cut_vectors(module: nn.Module, count: int, keep: Tensor) -> None:
    """Keep these channels in every vector of a norm or an activation."""
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    for name, tensor in tensors:
        if tensor.shape == (count,):
            _select(module, name, 0, keep)
    if hasattr(module, "num_features"):
        module.num_features = len(keep)  # type: ignore[assignment]
    if isinstance(module, GroupNorm):
        module.num_channels = len(keep)
        module.num_groups = len(keep) // group_size(len(keep))


def _select(module: nn.Module, name: str, axis: int, keep: Tensor) -> None:
    old: Tensor = getattr(module, name)
    new = old.detach().index_select(axis, keep.to(old.device))
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new, requires_grad=old.requires_grad)
    setattr(module, name, new)
