"""Networks by name."""

from collections.abc import Callable

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig

Builder = Callable[[NetworkConfig], nn.Module]

_builders: dict[str, Builder] = {}


def register_network(name: str) -> Callable[[Builder], Builder]:
    """Decorator: `builder(config)` makes the network called `name`, randomly initialized."""

    def register(builder: Builder) -> Builder:
        if name in _builders:
            raise ValueError(f"two networks are called {name}")
        _builders[name] = builder
        return builder

    return register


def list_networks() -> list[str]:
    """Names that `create_network` knows, sorted."""
    return sorted(_builders)


def make_network(config: NetworkConfig) -> nn.Module:
    """The ordinary network that `config` names, randomly initialized; `hidden`, `branches` ignored.

    Raises:
        PocketuneError: for an unknown name, or an option which this network does not have.
    """
    if config.name not in _builders:
        known = ", ".join(list_networks())
        raise PocketuneError(f"there is no network {config.name!r}; choose from {known}")
    return _builders[config.name](config)
