"""Store frozen kernels in 8 bits, or in float again."""

from collections.abc import Iterable

from torch import nn

from pocketune.layers import FrozenConv2d, QuantizedConv2d
from pocketune.layers.conv import SameConv2d, same_shape
from pocketune.networks.anatomy.modules import Factory
from pocketune.networks.copies import copy_network
from pocketune.surgery.freeze import FrozenSameConv2d, can_freeze
from pocketune.surgery.swap import swap


class QuantizedSameConv2d(QuantizedConv2d, SameConv2d):
    """`SameConv2d` with a frozen kernel of int8."""


QUANTIZED: dict[type[nn.Module], type[QuantizedConv2d]] = {
    nn.Conv2d: QuantizedConv2d,
    SameConv2d: QuantizedSameConv2d,
}

ROUNDED: dict[type[nn.Module], type[QuantizedConv2d]] = {
    **QUANTIZED,
    FrozenConv2d: QuantizedConv2d,
    FrozenSameConv2d: QuantizedSameConv2d,
}
"""What takes the place of which convolution; others stay as they are."""

FLOAT: dict[type[nn.Module], type[nn.Conv2d]] = {
    QuantizedConv2d: nn.Conv2d,
    QuantizedSameConv2d: SameConv2d,
}
"""And back."""


def quantize_frozen(network: nn.Module) -> None:
    """Make a `QuantizedConv2d` of every convolution whose kernel requires no gradient, in place.

    Kernels that are trained keep their values, biases too. Layers of other kinds are left alone,
    as are convolutions that fill their padding with anything but zeros.
    """
    found = {name: m for name, m in network.named_modules() if type(m) in ROUNDED}
    frozen = [name for name, conv in found.items() if can_freeze(conv)]
    factories: dict[str, Factory] = dict.fromkeys(frozen, _quantize)
    swap(network, factories)


def quantized(network: nn.Module) -> list[str]:
    """Names of the convolutions with kernels of int8 that can be had in float."""
    return [name for name, module in network.named_modules() if type(module) in FLOAT]


def dequantize(network: nn.Module, names: Iterable[str]) -> None:
    """Give these convolutions kernels of float, which may be trained, in place."""
    swap(network, dict.fromkeys(names, _dequantize))


def in_float(network: nn.Module) -> nn.Module:
    """A copy with kernels of float where the network has some of int8."""
    copied = copy_network(network)
    dequantize(copied, quantized(copied))
    return copied


def float_shapes(network: nn.Module) -> nn.Module:
    """The network to plan by: itself, or with kernels of float where it has some of int8.

    It is without any values then.
    """
    if not quantized(network):
        return network
    shapes = copy_network(network).to("meta")
    dequantize(shapes, quantized(shapes))
    return shapes


def _quantize(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, nn.Conv2d)
    return ROUNDED[type(conv)].from_convolution(conv)


def _dequantize(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, QuantizedConv2d)
    made = same_shape(FLOAT[type(conv)], conv)
    made.weight = nn.Parameter(conv.dequantize())
    return made
