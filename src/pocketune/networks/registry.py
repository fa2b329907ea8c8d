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
        name: the name for `create_network`.
        large_side_kernels: blocks whose side module has a kernel of 5 in Rep-Net's published
            layout for this network, although the maps there are small.

    Raises:
        ValueError: a network of that name is registered already.
    """

    def register(builder: Builder) -> Builder:
        if name in _builders:
            raise ValueError(f"two networks are called {name}")
        _builders[name] = builder
        _large_side_kernels[name] = frozenset(large_side_kernels)
        return builder

    return register


def list_networks(pattern: str = "*") -> list[str]:
    """Sorted names for `create_network` that match a pattern such as `resnet*`."""
    return sorted(fnmatch.filter(_builders, pattern))


def large_side_kernels(name: str) -> frozenset[str]:
    """The `large_side_kernels` that a network was registered with; empty for unknown names."""
    return _large_side_kernels.get(name, frozenset())


def make_network(config: NetworkConfig) -> nn.Module:
    """The unpruned network of `config`, randomly initialized; ignores `hidden` and `branches`.

    Raises:
        PocketuneError: the name is unknown, or this network does not have an option.
    """
    if config.name not in _builders:
        known = ", ".join(list_networks())
        raise PocketuneError(f"there is no network {config.name!r}; choose from {known}")
    return _builders[config.name](config)
