"""Sorting the hidden channels of a supernet's blocks by importance."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pocketune.networks import anatomy


@torch.no_grad()
def sort_hidden(network: nn.Module, kept: Mapping[str, int]) -> None:
    """Put the most important hidden channels of inverted residuals first, in place.

    Importance is the L1 norm of the projection's weights that read the channel (Once for All,
    section 3.3). The channels that a group norm normalizes together stay together, by their mean
    importance. What a block computes stays the same, up to rounding.

    Args:
        network: Changed in place.
        kept: Blocks to sort by path, and how many of their first channels stay in front of the
            others, in any order.
    """
    for block in anatomy(network).blocks:
        if block.name not in kept:
            continue
        ((producer, depthwise, consumer),) = block.hidden
        makers = [layer for layer in (producer, depthwise) if layer is not None]
        norms = [network.get_submodule(layer.norm) for layer in makers if layer.norm is not None]
        project = network.get_submodule(consumer.conv)
        assert isinstance(project, nn.Conv2d)
        order = _order(project.weight, _group(norms[0]), kept[block.name])
        for module in (*(network.get_submodule(layer.conv) for layer in makers), *norms):
            _permute(module, 0, order)
        _permute(project, 1, order)


def _group(norm: nn.Module) -> int:
    """How many consecutive channels a norm normalizes together."""
    return norm.num_channels // norm.num_groups if isinstance(norm, nn.GroupNorm) else 1


def _order(project: Tensor, group: int, front: int) -> Tensor:
    """Indices of the channels, most important first, of a projection (out, in, 1, 1)."""
    importance = project.abs().sum((0, 2, 3)).view(-1, group).mean(1)
    importance[front // group :] -= importance.max() + 1
    groups = torch.argsort(importance, descending=True, stable=True)
    return (groups[:, None] * group + torch.arange(group, device=groups.device)).flatten()


def _permute(module: nn.Module, axis: int, order: Tensor) -> None:
    """Reorder every tensor of a convolution or norm along an axis; a counter has no axis."""
    for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
        if tensor.dim() > axis:
            tensor.copy_(tensor.index_select(axis, order))
