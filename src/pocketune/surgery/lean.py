"""Exact layers that keep less than PyTorch's own."""

from torch import nn

from pocketune.layers import MaskedReLU, MaskedReLU6
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.swap import swap

_LEAN: dict[type[nn.Module], type[nn.Module]] = {nn.ReLU: MaskedReLU, nn.ReLU6: MaskedReLU6}


def use_lean_layers(network: nn.Module) -> None:
    """Make every ReLU and ReLU6 one that keeps a bit an element, in place.

    Values and gradients stay what they are. Other activations are left alone.
    """
    found = {n: _LEAN[type(m)] for n, m in network.named_modules() if type(m) in _LEAN}
    factories: dict[str, Factory] = {name: _make(lean) for name, lean in found.items()}
    swap(network, factories)


def _make(lean: type[nn.Module]) -> Factory:
    return lambda _: lean()
