"""Shapes of maps inside a network."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.networks.copies import copy_network


def input_shapes(
    network: nn.Module, names: Iterable[str], images: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """Shape of the input of each of these modules that a forward pass calls; computes nothing.

    Args:
        network: takes images of shape `images`, (N, 3, H, W); it stays as it is.
        names: paths of modules.
        images: N, 3, H and W.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    probe = copy_network(network).to("meta").eval()
    for name in names:

        def record(_: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
            x: Tensor = inputs[0]
            shapes[name] = tuple(x.shape)

        probe.get_submodule(name).register_forward_pre_hook(record)
    with torch.no_grad():
        probe(torch.empty(images, device="meta"))
    return shapes
