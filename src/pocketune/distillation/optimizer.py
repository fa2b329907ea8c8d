"""The optimizer of whole networks."""

import torch
from torch import nn


def sgd(network: nn.Module, lr: float, weight_decay: float) -> torch.optim.SGD:
    """SGD with Nesterov momentum 0.9; vectors, such as biases and norms, do not decay."""
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate for all parameters from now on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
