"""Activations that keep one bit an element, in the place of ordinary ones."""

from collections.abc import Iterable

from torch import nn

from pocketune.layers.activation import MASKED, SIGNED
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.swap import swap


def signed_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories of the `Signed...` variants of these modules, if they have one.

    Args:
        network: any module.
        names: names of modules; one may come several times, and None is skipped.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(SIGNED[kind]) for name, kind in kinds.items() if kind in SIGNED}


def signed_after(factory: Factory) -> Factory:
    """A factory of the `Signed...` variant of what `factory` makes, if that has one."""

    def make(old: nn.Module) -> nn.Module:
        made = factory(old)
        return SIGNED[type(made)]() if type(made) in SIGNED else made

    return make


def masked_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories of the exact one-bit variant of those of these modules that are ReLU6.

    An ordinary ReLU keeps its output, which the next convolution keeps in any case.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(MASKED[kind]) for name, kind in kinds.items() if kind is nn.ReLU6}


def mask_activations(network: nn.Module) -> None:
    """Let every ReLU and ReLU6 keep one bit an element, in place.

    Values and gradients stay exact. Other activations stay as they are.
    """
    kinds = {name: type(module) for name, module in network.named_modules()}
    swap(network, {name: _make(MASKED[kind]) for name, kind in kinds.items() if kind in MASKED})


def _make(layer: type[nn.Module]) -> Factory:
    return lambda _: layer()
