"""Activations that keep one bit an element, in the place of ordinary ones."""

from collections.abc import Iterable

from torch import nn

from pocketune.layers import MaskedReLU, MaskedReLU6, SignedHardswish, SignedReLU, SignedReLU6
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.swap import swap

SIGNED: dict[type[nn.Module], type[nn.Module]] = {
    nn.ReLU: SignedReLU,
    nn.ReLU6: SignedReLU6,
    MaskedReLU: SignedReLU,
    MaskedReLU6: SignedReLU6,
    nn.Hardswish: SignedHardswish,
}
"""What has an approximate backward pass."""


def signed_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories of the `Signed...` variants of these modules, where they have one.

    Args:
        network: any module.
        names: of modules, each once or several times; None is passed over.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(SIGNED[kind]) for name, kind in kinds.items() if kind in SIGNED}


def signed_after(factory: Factory) -> Factory:
    """A factory of the `Signed...` variant of what `factory` makes, where that has one."""

    def make(old: nn.Module) -> nn.Module:
        made = factory(old)
        return SIGNED[type(made)]() if type(made) in SIGNED else made

    return make


def masked_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories that let those of these modules that are ReLU6 keep one bit, exactly.

    An ordinary ReLU keeps its output, which a convolution behind it keeps in any case.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(MaskedReLU6) for name, kind in kinds.items() if kind is nn.ReLU6}


_LEAN: dict[type[nn.Module], type[nn.Module]] = {nn.ReLU: MaskedReLU, nn.ReLU6: MaskedReLU6}


def use_lean_layers(network: nn.Module) -> None:
    """Make every ReLU and ReLU6 one that keeps a bit an element, in place.

    Values and gradients stay what they are. Other activations are left alone.
    """
    found = {n: _LEAN[type(m)] for n, m in network.named_modules() if type(m) in _LEAN}
    factories: dict[str, Factory] = {name: _make(lean) for name, lean in found.items()}
    swap(network, factories)


def _make(layer: type[nn.Module]) -> Factory:
    return lambda _: layer()
