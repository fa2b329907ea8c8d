"""Store frozen kernels in 8 bits, or in float again."""

from collections.abc import Iterable

from torch import nn

from pocketune.layers import FrozenConv2d, QuantisedConv2d
from pocketune.layers.same_shape import same_shape
from pocketune.networks.conv import SameConv2d
from pocketune.networks.copies import copy_network
from pocketune.networks.int8 import QUANTISED, QuantisedSameConv2d
from pocketune.networks.modules import Factory
from pocketune.surgery.freeze import FrozenSameConv2d, can_freeze
from pocketune.surgery.swap import swap

ROUNDED: dict[type[nn.Module], type[QuantisedConv2d]] = {
    **QUANTISED,
    FrozenConv2d: QuantisedConv2d,
    FrozenSameConv2d: QuantisedSameConv2d,
}
"""What takes the place of which convolution; others stay as they are."""

FLOAT: dict[type[nn.Module], type[nn.Conv2d]] = {
    QuantisedConv2d: nn.Conv2d,
    QuantisedSameConv2d: SameConv2d,
}
"""And back."""


def quantise_frozen(network: nn.Module) -> None:
    """Make a `QuantisedConv2d` of every convolution whose kernel requires no gradient, in place.

    Kernels that are trained keep their values, biases too. Layers of other kinds are left alone,
    as are convolutions that fill their padding with anything but zeros.
    """
    found = {name: m for name, m in network.named_modules() if type(m) in ROUNDED}
    frozen = [name for name, conv in found.items() if can_freeze(conv)]
    factories: dict[str, Factory] = dict.fromkeys(frozen, _quantise)
    swap(network, factories)


def quantised(network: nn.Module) -> list[str]:
    """Names of the convolutions with kernels of int8 that can be had in float."""
    return [name for name, module in network.named_modules() if type(module) in FLOAT]


def dequantise(network: nn.Module, names: Iterable[str]) -> None:
    """Give these convolutions kernels of float, which may be trained, in place."""
    swap(network, dict.fromkeys(names, _dequantise))


def in_float(network: nn.Module) -> nn.Module:
    """A copy with kernels of float where the network has some of int8."""
    copied = copy_network(network)
    dequantise(copied, quantised(copied))
    return copied


def float_shapes(network: nn.Module) -> nn.Module:
    """The network to plan by: itself, or with kernels of float where it has some of int8.

    It is without any values then.
    """
    if not quantised(network):
        return network
    shapes = copy_network(network).to("meta")
    dequantise(shapes, quantised(shapes))
    return shapes


def _quantise(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, nn.Conv2d)
    return ROUNDED[type(conv)].from_convolution(conv)


def _dequantise(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, QuantisedConv2d)
    made = same_shape(FLOAT[type(conv)], conv)
    made.weight = nn.Parameter(conv.dequantise())
    return made
