"""A copy of a network that has shapes and no values: it takes no memory and computes nothing."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pocketune.errors import PocketuneError
from pocketune.networks.copies import kept_tensors
from pocketune.torch_private import FakeTensorMode


def fake_copy(network: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """`network` with fake CPU tensors of the same shape, strides, type and `requires_grad`.

    Tensors that are shared stay shared. The network itself is left as it is, and may be on any
    device, `meta` among them.

    Raises:
        PocketuneError: a module is lazy: it does not know its shapes yet.
    """
    copies: dict[int, object] = {}  # as `copy.deepcopy` remembers what it has copied already
    with mode:
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
            if is_lazy(tensor):
                raise PocketuneError(
                    f"the parameter {name} is lazy and has no shape yet; run the network once on "
                    "a batch of images first"
                )
            copies[id(tensor)] = _fake(tensor)
        for tensor in kept_tensors(network):
            copies.setdefault(id(tensor), _fake(tensor))
        return copy.deepcopy(network, copies)


def _fake(tensor: Tensor) -> Tensor:
    empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
