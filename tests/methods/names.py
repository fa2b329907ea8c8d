"""Names of what a method trains and replaces."""

from torch import nn


def trained(network: nn.Module) -> set[str]:
    """Names of the trained parameters."""
    return {name for name, p in network.named_parameters() if p.requires_grad}


def layers_of(network: nn.Module, *kinds: type[nn.Module]) -> set[str]:
    """Names of the layers of these kinds."""
    return {name for name, module in network.named_modules() if isinstance(module, kinds)}
