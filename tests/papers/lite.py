"""ProxylessNAS-Mobile with TinyTL's lite residual modules, as TinyTL's table 2 has it."""

from __future__ import annotations

import torch
from torch import nn

from pocketune.layers import LiteResidual
from pocketune.methods import TinyTL
from pocketune.networks.anatomy.modules import is_norm
from pocketune.surgery import add_branches

from ..networks.meta import on_meta

MODULES = 19


def add_lite(network: nn.Module, blocks: int = MODULES) -> nn.Module:
    """Beside the last `blocks` blocks."""
    branches = list(TinyTL().plan(network).branches.items())
    assert len(branches) == MODULES
    with torch.device("meta"):
        add_branches(network, dict(branches[-blocks:]))
    return network


def lite_network(classes: int = 102) -> nn.Module:
    return add_lite(on_meta("proxylessnas_mobile", classes=classes))


def trained_sets(network: nn.Module) -> dict[str, set[str]]:
    """What each row of the table trains, by the names of parameters."""
    names = [name for name, _ in network.named_parameters()]
    norms = {name for name, module in network.named_modules() if is_norm(module)}
    last = {"classifier.1.weight", "classifier.1.bias"}
    biases = last | {name for name in names if name.endswith("bias")}
    lite = last | {name for name in names if ".branch." in name}
    last_shifts = {name for name in names if name.endswith(f"branch.{LiteResidual.LAST_BIAS}")}
    return {
        "FT-Last": last,
        "TinyTL-B": biases,
        "TinyTL-L": lite,
        "TinyTL-L+B": (lite | biases) - last_shifts,
        "FT-Norm+Last": last | {name for name in names if name.rpartition(".")[0] in norms},
        "FT-Full": set(names),
    }
