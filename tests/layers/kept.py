"""What a forward pass keeps for the backward pass, as PyTorch's own hooks see it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def kept_tensors(function: Callable[..., object], *inputs: Tensor) -> list[Tensor]:
    """Tensors that autograd keeps of a call, in its order; one that is kept twice is there twice.

    They hold their memory, so that no two storages have the same place.
    """
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*inputs)
    return kept


def kept_bytes(
    network: nn.Module, images: Tensor, loss: Callable[[Tensor], Tensor] | None = None
) -> int:
    """Bytes of all that autograd keeps, but what is the network's own, each storage once."""
    kept = kept_tensors(lambda x: loss(network(x)) if loss else network(x), images)
    own = _storages([*network.parameters(), *network.buffers()])
    return sum(size for place, size in _storages(kept).items() if place not in own)


def _storages(tensors: list[Tensor]) -> dict[int, int]:
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}
