"""Replace modules by others, such as activations by ones that keep one bit an element."""

import copy
from collections.abc import Iterable, Mapping

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers.activation import MASKED, SIGNED
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.branch import checked, move_hooks, replace_beside_branch


def swap(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Replace modules of `network`, in place.

    The new module takes over the mode (training or evaluation), the side branch and the forward
    and backward hooks of the old one.

    Args:
        network: Any module.
        factories: By the name of the module to replace, as in `network.named_modules()`.

    Raises:
        AttributeError: If there is no module of that name.
        PocketuneError: If a factory raises one, or makes no module; it names the module.
    """
    for name, factory in factories.items():
        old = network.get_submodule(name)
        try:
            made = replace_beside_branch(old, checked(factory)).train(old.training)
        except PocketuneError as error:
            raise PocketuneError(f"{name}: {error}") from error
        move_hooks(old, made)
        network.set_submodule(name, made, strict=True)


def separate(network: nn.Module) -> None:
    """Give each path its own copy of a shared module without values, in place.

    A method can then change an activation at one path and leave it at another.

    Raises:
        PocketuneError: If a layer with parameters or buffers is at several paths.
    """
    first: dict[nn.Module, str] = {}
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if module not in first:
            first[module] = path
        elif module.state_dict():
            raise PocketuneError(
                f"{path} is the same module as {first[module]}: layers that share their values "
                "cannot be adapted; give each path a layer of its own"
            )
        else:
            network.set_submodule(path, copy.deepcopy(module), strict=True)


def signed_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories of the `Signed...` variants of those of these modules that have one.

    Args:
        network: Any module.
        names: Names of modules; they may repeat, and None is skipped.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(SIGNED[kind]) for name, kind in kinds.items() if kind in SIGNED}


def signed_after(factory: Factory) -> Factory:
    """A factory of the `Signed...` variant, if any, of the module that `factory` makes."""

    def make(old: nn.Module) -> nn.Module:
        made = factory(old)
        return SIGNED[type(made)]() if type(made) in SIGNED else made

    return make


def masked_activations(network: nn.Module, names: Iterable[str | None]) -> dict[str, Factory]:
    """Factories of the exact one-bit variants of those of these modules that are ReLU6.

    An ordinary ReLU keeps its output, which the next convolution keeps anyway.
    """
    kinds = {name: type(network.get_submodule(name)) for name in names if name}
    return {name: _make(MASKED[kind]) for name, kind in kinds.items() if kind is nn.ReLU6}


def mask_activations(network: nn.Module) -> None:
    """Replace every ReLU and ReLU6 by its exact variant of one bit an element, in place."""
    kinds = {name: type(module) for name, module in network.named_modules()}
    swap(network, {name: _make(MASKED[kind]) for name, kind in kinds.items() if kind in MASKED})


def _make(layer: type[nn.Module]) -> Factory:
    return lambda _: layer()
