"""Store frozen weights in 8 bits, and convert them back to float."""

from collections.abc import Iterable
from typing import TypeGuard

from torch import nn

from pocketune.layers import FrozenConv2d, QuantizedConv2d, QuantizedLinear
from pocketune.layers.conv import Conv2d, is_plain
from pocketune.networks.copies import copy_network, copy_shapes
from pocketune.surgery.freeze import can_freeze
from pocketune.surgery.swap import swap


def quantize_frozen(network: nn.Module) -> None:
    """Turn convolutions and linear layers whose weight requires no gradient into int8, in place.

    They become `QuantizedConv2d` and `QuantizedLinear`. Biases and trained weights keep their
    values. Other layers are not changed, nor are convolutions that do not pad with zeros.
    """
    frozen = [
        name
        for name, module in network.named_modules()
        if (_has_kernel(module) and can_freeze(module)) or _is_frozen_linear(module)
    ]
    swap(network, dict.fromkeys(frozen, _quantize))


def quantized(network: nn.Module) -> list[str]:
    """Names of the layers with int8 weights, which `dequantize` takes."""
    kinds = (QuantizedConv2d, QuantizedLinear)
    return [name for name, module in network.named_modules() if type(module) in kinds]


def dequantize(network: nn.Module, names: Iterable[str]) -> None:
    """Give these layers float weights, which can be trained, in place."""
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
    shapes = copy_shapes(network)
    dequantize(shapes, quantized(shapes))
    return shapes


def _has_kernel(module: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a module is a convolution that computes with its stored kernel."""
    return is_plain(module) or type(module) is FrozenConv2d


def _is_frozen_linear(module: nn.Module) -> bool:
    """Whether a module is PyTorch's own linear layer, with a weight that is stored and frozen."""
    plain = type(module) is nn.Linear and "weight" in module._parameters
    return plain and not module.weight.requires_grad


def _quantize(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    if isinstance(layer, nn.Linear):
        return QuantizedLinear.from_linear(layer)
    return QuantizedConv2d.from_convolution(layer)


def _dequantize(layer: QuantizedConv2d | QuantizedLinear) -> nn.Module:
    if isinstance(layer, QuantizedLinear):
        linear = nn.Linear(
            layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta"
        )
        linear.weight, linear.bias = nn.Parameter(layer.weight), layer.bias
        return linear
    made = Conv2d.like(layer)
    made.weight = nn.Parameter(layer.kernel())
    return made
