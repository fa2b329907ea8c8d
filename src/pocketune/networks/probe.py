"""Watching what goes into modules while a network predicts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pocketune.networks.copies import copy_network


def watch_inputs(
    network: nn.Module,
    batches: Iterable[Tensor],
    watchers: Mapping[nn.Module, Callable[[Tensor], None]],
) -> int:
    """Run a network as it predicts, and show each watched module's input to its watcher.

    Args:
        network: left as it is, its training mode included.
        batches: normalized images (N, 3, H, W).
        watchers: by the module, what takes its first input.

    Returns:
        How many images there were.
    """

    def show(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        watchers[module](inputs[0])

    hooks = [module.register_forward_pre_hook(show) for module in watchers]
    modes = {module: module.training for module in network.modules()}
    network.eval()
    seen = 0
    try:
        with torch.no_grad():
            for batch in batches:
                network(batch)
                seen += len(batch)
    finally:
        for module, training in modes.items():
            module.training = training
        for hook in hooks:
            hook.remove()
    return seen


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
