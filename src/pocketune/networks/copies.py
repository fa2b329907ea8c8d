"""Copies of networks, and gradients, whatever the caller has run or turned off before."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


def copy_network(network: Network) -> Network:
    """`copy.deepcopy`, but for tensors with a graph that modules have as attributes.

    PyTorch refuses to copy such a tensor, as a forward pass that notes its features leaves it, or
    `torch.nn.utils.weight_norm` a kernel. The copy has it without its graph.
    """
    memo = {
        id(tensor): tensor.detach().clone()
        for tensor in kept_tensors(network)
        if not tensor.is_leaf
    }
    return copy.deepcopy(network, memo)


def kept_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Every tensor that a module has in an attribute, whether or not it has registered it."""
    for module in network.modules():
        for value in vars(module).values():
            yield from _tensors(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Those in an attribute, also in lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)


@contextmanager
def gradients_on() -> Iterator[None]:
    """Let autograd record in here, or in the function that this decorates.

    What is copied under `torch.inference_mode` could never be trained, and what looks for
    gradients would find none under it or `torch.no_grad`.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
