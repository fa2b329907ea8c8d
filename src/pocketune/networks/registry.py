"""Networks by name."""

from collections.abc import Callable

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.layers import LiteResidual
from pocketune.networks.branch import add_branches
from pocketune.networks.config import NetworkConfig
from pocketune.networks.hidden import narrow
from pocketune.networks.init import initialise
from pocketune.networks.modules import Factory

Builder = Callable[[NetworkConfig], nn.Module]

_builders: dict[str, Builder] = {}


def register_network(name: str) -> Callable[[Builder], Builder]:
    """Decorator: `builder(config)` makes the network called `name`, randomly initialised."""

    def register(builder: Builder) -> Builder:
        if name in _builders:
            raise ValueError(f"two networks are called {name}")
        _builders[name] = builder
        return builder

    return register


def list_networks() -> list[str]:
    """Names that `create_network` knows, sorted."""
    return sorted(_builders)


def build(config: NetworkConfig) -> nn.Module:
    """The network that `config` describes, randomly initialised.

    Raises:
        PocketuneError: for an unknown name, an option which this network does not have, or
            `hidden` channels which its blocks cannot have.
    """
    if config.name not in _builders:
        known = ", ".join(list_networks())
        raise PocketuneError(f"there is no network {config.name!r}; choose from {known}")
    network = _builders[config.name](config)
    if config.hidden:
        narrow(network, config.hidden)
        initialise(network)
    add_branches(network, {block: _lite_residual(**a) for block, a in config.branches.items()})
    return network


def _lite_residual(**arguments: int) -> Factory:
    return lambda _: LiteResidual(**arguments)
