"""Give every path of a network a module of its own."""

import copy

from torch import nn

from pocketune.errors import PocketuneError


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
