"""MobileTL's blocks, of plain layers: shifts alone in the inner norms, one bit an activation."""

from __future__ import annotations

from torch import nn

from pocketune.layers import FrozenBatchNorm2d
from pocketune.methods import TopBlocks
from pocketune.networks import anatomy
from pocketune.networks.architectures.parts import ConvNormActivation, SqueezeExcite, make_divisible
from pocketune.surgery import swap

from ..accounting.networks import adapted


def freeze_scale(norm: nn.Module) -> nn.Module:
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    frozen.weight.requires_grad_(False)
    return frozen


def one_bit(_: nn.Module) -> nn.Module:
    """Costs what MobileTL's activation costs, in each of its conventions."""
    return nn.ReLU()


def inner(network: nn.Module, part: str, blocks: int = 3) -> list[str]:
    """Paths of the norms or activations within the top blocks."""
    layers = [layer for b in anatomy(network).blocks[-blocks:] for layer in b.layers]
    return [getattr(layer, part) for layer in layers if layer.role != "project"]


def with_relu(network: nn.Module, blocks: int = 3) -> nn.Module:
    swap(network, dict.fromkeys(inner(network, "activation", blocks), one_bit))
    return network


def without_squeeze_excite(network: nn.Module, blocks: int = 3) -> nn.Module:
    paths = [block.squeeze_excite for block in anatomy(network).blocks[-blocks:]]
    swap(network, dict.fromkeys(paths, lambda _: nn.Identity()))
    return network


def mobiletl(network: nn.Module, blocks: int = 3) -> nn.Module:
    with_relu(network, blocks)
    swap(network, dict.fromkeys(inner(network, "norm", blocks), freeze_scale))
    return network


def mobiletl_network(name: str, blocks: int = 3, **options) -> nn.Module:
    return mobiletl(adapted(name, TopBlocks(blocks), **options), blocks)


def block(activation: type[nn.Module], *, expansion: int = 1, squeeze_excite: bool = False):
    """An inverted residual of 96 channels, 5 x 5, that keeps its expansion when it is 1."""
    middle = 96 * expansion
    gate = [SqueezeExcite(middle, make_divisible(middle // 4))] if squeeze_excite else []
    return nn.Sequential(
        ConvNormActivation(96, middle, activation=activation),
        ConvNormActivation(middle, middle, 5, groups=middle, activation=activation),
        *gate,
        ConvNormActivation(middle, 96, activation=None),
    )


def as_mobiletl(block: nn.Sequential) -> nn.Sequential:
    for layer in block[:2]:
        layer[1], layer[2] = freeze_scale(layer[1]), nn.ReLU()
    return block
