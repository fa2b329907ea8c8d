"""Store frozen kernels in 8 bits, and convert them back to float."""

from collections.abc import Iterable
from typing import TypeGuard

from torch import nn

from pocketune.layers import FrozenConv2d, QuantizedConv2d
from pocketune.layers.conv import Conv2d, is_plain
from pocketune.networks.copies import copy_network
from pocketune.surgery.freeze import can_freeze
from pocketune.surgery.swap import swap


def quantize_frozen(network: nn.Module) -> None:
    """Turn every convolution whose kernel requires no gradient into a `QuantizedConv2d`, in place.

    Biases and trained kernels keep their values. Other layers are not changed, nor are convolutions
    that do not pad with zeros.
    """
    frozen = [n for n, m in network.named_modules() if _has_kernel(m) and can_freeze(m)]
    swap(network, dict.fromkeys(frozen, _quantize))


def quantized(network: nn.Module) -> list[str]:
    """Names of the convolutions with int8 kernels, which `dequantize` takes."""
    return [name for name, module in network.named_modules() if type(module) is QuantizedConv2d]


def dequantize(network: nn.Module, names: Iterable[str]) -> None:
    """Give these convolutions float kernels, which can be trained, in place."""
    swap(network, dict.fromkeys(names, _dequantize))


def in_float(network: nn.Module) -> nn.Module:
    """A copy of a network with all kernels in float."""
    copied = copy_network(network)
    dequantize(copied, quantized(copied))
    return copied


def float_shapes(network: nn.Module) -> nn.Module:
    """The network to plan with: itself, or a copy without values if it has int8 kernels.

    The kernels of the copy are float, and all its tensors are on the meta device.
    """
    if not quantized(network):
        return network
    shapes = copy_network(network).to("meta")
    dequantize(shapes, quantized(shapes))
    return shapes


def _has_kernel(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution that computes with its stored kernel."""
    return is_plain(module) or type(module) is FrozenConv2d


def _quantize(conv: nn.Module) -> nn.Module:
    assert _has_kernel(conv)
    return QuantizedConv2d.from_convolution(conv)


def _dequantize(conv: nn.Module) -> nn.Module:
    assert isinstance(conv, QuantizedConv2d)
    made = Conv2d.like(conv)
    made.weight = nn.Parameter(conv.kernel())
    return made
