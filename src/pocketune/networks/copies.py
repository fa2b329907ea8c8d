"""Copying a network whatever autograd has left in it."""

import copy
from collections import OrderedDict
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
    return _copied(network, _detached(network))


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
    return _copied(network, memo).to("meta")


Memo = dict[int, Any]
"""The memo of `copy.deepcopy`: copies by the number of what they are copies of."""


def _detached(network: nn.Module) -> Memo:
    """Copies of the tensors that PyTorch refuses to copy."""
    return {
        id(tensor): tensor.detach().clone()
        for tensor in kept_tensors(network)
        if not tensor.is_leaf
    }


def _copied(network: Network, memo: Memo) -> Network:
    """`copy.deepcopy` in half of the time: a module has a dozen empty collections of hooks."""
    plain = {kind for kind in set(map(type, network.modules())) if _is_plain(kind)}
    modules = [module for module in network.modules() if type(module) in plain]
    memo.update((id(module), type(module).__new__(type(module))) for module in modules)
    for module in reversed(modules):  # those that others hold before these
        state = {name: _copied_value(value, memo) for name, value in vars(module).items()}
        memo[id(module)].__setstate__(state)
    return copy.deepcopy(network, memo)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether the attributes in a module's dictionary are all that a copy needs."""
    own = {name for base in kind.__mro__[: -len(nn.Module.__mro__)] for name in vars(base)}
    return not own & _COPYING


_COPYING = {
    "__deepcopy__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getstate__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__slots__",
}
"""What a class may define to be copied in its own way."""

_ATOMS = (bool, int, float, str, type(None))
_COLLECTIONS = (dict, OrderedDict, set)


def _copied_value(value: Any, memo: Memo) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind in _COLLECTIONS and not value:
        return memo.setdefault(id(value), kind())
    return copy.deepcopy(value, memo)


def kept_tensors(network: nn.Module) -> Iterator[Tensor]:
    """Every tensor in an attribute of a module, registered or not."""
    for module in network.modules():
        for value in vars(module).values():
            kind = type(value)
            if kind not in _ATOMS and (kind not in _COLLECTIONS or value):
                yield from _tensors(value)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Tensors in a value, also inside lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, (dict, Mapping)):
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
