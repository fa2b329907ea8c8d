"""Starting values of networks and of new classifiers."""

import math

from torch import nn


def initialize(network: nn.Module) -> None:
    """He initialization (fan out) of convolutions, identity norms, `initialize_linear`."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            initialize_linear(module)


def initialize_linear(layer: nn.Linear) -> None:
    """Weights uniform in +-1 / sqrt(fan in), bias 0: how every new classifier starts."""
    bound = 1 / math.sqrt(layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
