"""Put another module in a module's place."""

import copy
from collections.abc import Mapping

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.modules import Factory
from pocketune.surgery.branch import move_hooks, replace_beside_branch


def swap(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Replace modules of `network`, in place.

    Args:
        network: any module.
        factories: by the name of the module to replace, as in `network.named_modules()`. The new
            module is in training or evaluation mode as the old one was, and has its side branch and
            the hooks that run when it is called.

    Raises:
        AttributeError: if there is no module of that name.
        PocketuneError: of a factory, naming the module.
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
    """Copy modules without values, such as activations, that stand at several paths, in place.

    What a method does to a layer it then does at every path, and where it is to leave one alone it
    can.

    Raises:
        PocketuneError: if a layer with parameters or buffers stands at several paths.
    """
    first: dict[nn.Module, str] = {}
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if module not in first:
            first[module] = path
        elif module.state_dict():
            raise PocketuneError(
                f"{path} is the same module as {first[module]}: layers that share their values "
                "cannot be adapted; give each its own"
            )
        else:
            network.set_submodule(path, copy.deepcopy(module), strict=True)
