"""Put another module in a module's place."""

import copy
from collections.abc import Mapping

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.branch import move_hooks, replace_beside_branch


def swap(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Replace modules of `network`, in place.

    The new module has the mode (training or evaluation), the side branch and the forward and
    backward hooks of the old one.

    Args:
        network: any module.
        factories: by the name of the module to replace, as in `network.named_modules()`.

    Raises:
        AttributeError: if there is no module of that name.
        PocketuneError: if a factory raises one; it names the module.
    """
    for name, factory in factories.items():
        old = network.get_submodule(name)
        try:
            made = replace_beside_branch(old, factory).train(old.training)
        except PocketuneError as error:
            raise PocketuneError(f"{name}: {error}") from error
        move_hooks(old, made)
        network.set_submodule(name, made, strict=True)


def separate(network: nn.Module) -> None:
    """Give every path a module of its own where modules without values are shared, in place.

    A method can then change an activation at one path and leave it at another.

    Raises:
        PocketuneError: if a layer with parameters or buffers is at several paths.
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
