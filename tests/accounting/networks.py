"""Networks on the meta device: shapes are all that the papers' conventions need."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from torch import nn

from pocketune.methods import Method, adapt
from pocketune.papers import ModuleTrace, trace_modules

from ..networks.meta import on_meta


def adapted(name: str, method: Method, **options) -> nn.Module:
    return adapt(on_meta(name, **options), method)


@cache
def adapted_trace(name: str, method: Method, classes: int) -> ModuleTrace:
    """Of an adapted network at 224 px; made once for all conventions."""
    return trace_modules(adapted(name, method, classes=classes))


def train_only(network: nn.Module, trained: Iterable[str]) -> nn.Module:
    chosen = set(trained)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name in chosen)
    return network
