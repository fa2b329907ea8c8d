"""Copying a network whatever autograd has left in it."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from pocketune.networks.shapes import empty_like

Network = TypeVar("Network", bound=nn.Module)


def copy_network(network: Network) -> Network:
    """`copy.deepcopy` that also copies tensors with an autograd graph.

    PyTorch refuses to copy such a tensor. Modules have them as attributes if a forward pass stores
    its features, or after `torch.nn.utils.weight_norm`. The copy is detached from the graph.
    """
    return copy.deepcopy(network, _detached(network))


def copy_shapes(network: Network) -> Network:
    """A copy on the meta device; no value of a parameter or buffer is copied on the way."""
    memo = _detached(network)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.layout is not torch.strided:
            continue
        if type(tensor) is nn.Parameter:
            memo[id(tensor)] = nn.Parameter(empty_like(tensor), tensor.requires_grad)
        elif type(tensor) is Tensor and not tensor.requires_grad:
            memo[id(tensor)] = empty_like(tensor)
    return copy.deepcopy(network, memo).to("meta")


def disable_inplace(network: nn.Module) -> None:
    """Let every activation return a new tensor; changes the network in place.

    An activation that overwrites its input would be a mutation in the traced step, which ONNX
    cannot express, and the layer before it could not keep its output for the backward pass. In a
    run that is watched, all that reads the activation would read that layer, too.
    """
    for module in network.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]


def _detached(network: nn.Module) -> dict[int, Any]:
    """A memo for `copy.deepcopy`: copies of the tensors that PyTorch refuses to copy, by `id`."""
    return {
        id(tensor): tensor.detach().clone()
        for tensor in kept_tensors(network)
        if not tensor.is_leaf
    }


def kept_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Every tensor in an attribute of a module, registered or not."""
    for module in network.modules():
        for value in vars(module).values():
            yield from _tensors(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Tensors in a value, also inside lists and dictionaries."""
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
    """Let autograd record in the context, or in the function that this decorates.

    A network copied under `torch.inference_mode` could never be trained, and no gradients would be
    found under it or under `torch.no_grad`.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield
