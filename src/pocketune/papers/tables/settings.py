"""Networks as the papers' tables have them, on the meta device: shapes are all they need."""

from collections.abc import Collection

import torch
from torch import nn

from pocketune.methods import TinyTL
from pocketune.surgery import add_branches, train_only
from pocketune.weights import create_network


def shapes(name: str, *, classes: int, width: float = 1.0) -> nn.Module:
    """A network without values."""
    with torch.device("meta"):
        return create_network(name, classes=classes, width=width)


def training(network: nn.Module, trained: Collection[str]) -> nn.Module:
    """The network itself, where these parameters are trained and nothing is replaced."""
    train_only(network, trained)
    return network


def add_lite_residuals(network: nn.Module) -> nn.Module:
    """TinyTL's modules beside all blocks but the first, in place."""
    with torch.device("meta"):
        add_branches(network, TinyTL().plan(network).branches)
    return network
