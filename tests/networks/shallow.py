"""Networks of the registry with each kind of block once: as much to compile in half the time."""

from torch import nn

from pocketune.networks import anatomy
from pocketune.networks.anatomy.blocks import Block
from pocketune.networks.anatomy.modules import is_convolution


def shallow(network: nn.Module) -> nn.Module:
    """Leave out, in place, each block that could be left out and is built like one before it."""
    seen: set[object] = set()
    repeated = []
    for block in anatomy(network).blocks:
        kind = _kind(network, block)
        if kind in seen and _keeps_channels(network, block):
            repeated.append(block.name)
        seen.add(kind)
    for path in reversed(repeated):  # the last first, for those behind a block move up
        stage, _, place = path.rpartition(".")
        del network.get_submodule(stage)[int(place)]  # type: ignore[operator]
    return network


def _keeps_channels(network: nn.Module, block: Block) -> bool:
    """Whether what is behind the block may follow what is before it."""
    if block.layer("downsample") is not None:
        return False
    convolutions = [m for m in network.get_submodule(block.name).modules() if is_convolution(m)]
    return convolutions[0].in_channels == convolutions[-1].out_channels


def _kind(network: nn.Module, block: Block) -> object:
    """All but the numbers of channels."""
    parts = [
        (type(module), getattr(module, "kernel_size", None), getattr(module, "stride", None))
        for module in network.get_submodule(block.name).modules()
        if is_convolution(module) or not list(module.children())
    ]
    return block.residual, block.squeeze_excite is None, tuple(parts)
