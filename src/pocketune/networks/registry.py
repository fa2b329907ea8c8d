"""Networks by name."""

import fnmatch
from collections.abc import Callable, Iterable

from torch import nn

from pocketune.errors import PocketuneError
from pocketune.networks.config import NetworkConfig

Builder = Callable[[NetworkConfig], nn.Module]

_builders: dict[str, Builder] = {}
_large_side_kernels: dict[str, frozenset[str]] = {}


def register_network(
    name: str, *, large_side_kernels: Iterable[str] = ()
) -> Callable[[Builder], Builder]:
    """Decorator: `builder(config)` makes the network called `name`, randomly initialized.

    Args:
        name: under which `create_network` knows it.
        large_side_kernels: blocks beside which Rep-Net's published layout for this network has a
            kernel of 5, although the maps there are small.

    Raises:
        ValueError: if there is a network of that name already.
    """

    def register(builder: Builder) -> Builder:
        if name in _builders:
            raise ValueError(f"two networks are called {name}")
        _builders[name] = builder
        _large_side_kernels[name] = frozenset(large_side_kernels)
        return builder

    return register


def list_networks(pattern: str = "*") -> list[str]:
    """Names that `create_network` knows, sorted; those that fit a pattern such as `resnet*`."""
    return sorted(fnmatch.filter(_builders, pattern))


def large_side_kernels(name: str) -> frozenset[str]:
    """What `register_network` was given for the network of that name; empty for any other."""
    return _large_side_kernels.get(name, frozenset())


def make_network(config: NetworkConfig) -> nn.Module:
    """The ordinary network that `config` names, randomly initialized; `hidden`, `branches` ignored.

    Raises:
        PocketuneError: for an unknown name, or an option which this network does not have.
    """
    if config.name not in _builders:
        known = ", ".join(list_networks())
        raise PocketuneError(f"there is no network {config.name!r}; choose from {known}")
    return _builders[config.name](config)
