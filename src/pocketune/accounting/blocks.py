"""Which block of a network a layer belongs to."""

from __future__ import annotations

from torch import nn

from pocketune.networks.anatomy.anatomy import CONTAINERS


def block_paths(network: nn.Module) -> list[str]:
    """Paths of the outermost modules that are no mere containers.

    Of a MobileNetV2 these are `features.0`, `features.1`, ...; of a ResNet `conv1`, `bn1`, ...,
    `layer1.0`, `layer1.1`, ..., `fc`.
    """
    found: list[str] = []

    def descend(path: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            place = f"{path}.{name}" if path else name
            if type(child) in CONTAINERS:
                descend(place, child)
            else:
                found.append(place)

    descend("", network)
    return found


def block_of(layer: str, blocks: list[str]) -> str:
    """The block that the layer at this path is, or is in; the layer itself if it is in none."""
    return next((block for block in blocks if f"{layer}.".startswith(f"{block}.")), layer)
