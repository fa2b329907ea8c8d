"""Put another module in a module's place."""

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
