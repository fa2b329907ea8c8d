"""Put another module in a module's place."""

from collections.abc import Mapping

from torch import nn

from pocketune.networks.modules import Factory


def swap(network: nn.Module, factories: Mapping[str, Factory]) -> None:
    """Replace modules of `network`, in place.

    Args:
        network: any module.
        factories: by the name of the module to replace, as in `network.named_modules()`. The new
            module is in training or evaluation mode as the old one was.

    Raises:
        AttributeError: if there is no module of that name.
    """
    for name, factory in factories.items():
        old = network.get_submodule(name)
        network.set_submodule(name, factory(old).train(old.training), strict=True)
