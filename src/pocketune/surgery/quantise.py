"""Store frozen kernels in 8 bits."""

from torch import nn

from pocketune.layers import FrozenConv2d, QuantisedConv2d
from pocketune.networks.conv import SameConv2d
from pocketune.networks.modules import Factory
from pocketune.surgery.freeze import FrozenSameConv2d
from pocketune.surgery.swap import swap


class QuantisedSameConv2d(QuantisedConv2d, SameConv2d):
    """`SameConv2d` with a frozen kernel of int8."""


QUANTISED: dict[type[nn.Module], type[QuantisedConv2d]] = {
    nn.Conv2d: QuantisedConv2d,
    FrozenConv2d: QuantisedConv2d,
    SameConv2d: QuantisedSameConv2d,
    FrozenSameConv2d: QuantisedSameConv2d,
}
"""What takes the place of which convolution; others stay as they are."""


def quantise_frozen(network: nn.Module) -> None:
    """Make a `QuantisedConv2d` of every convolution whose kernel requires no gradient, in place.

    Kernels that are trained keep their values, biases too. Layers of other kinds are left alone,
    as are convolutions that fill their padding with anything but zeros.
    """
    found = {name: m for name, m in network.named_modules() if type(m) in QUANTISED}
    frozen = [name for name, conv in found.items() if _can_quantise(conv)]
    factories: dict[str, Factory] = dict.fromkeys(frozen, _quantise)
    swap(network, factories)


def _can_quantise(conv: nn.Module) -> bool:
    assert isinstance(conv, nn.Conv2d)
    plain = conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
    return plain and not conv.weight.requires_grad


def _quantise(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, nn.Conv2d)
    return QUANTISED[type(conv)].from_convolution(conv)
