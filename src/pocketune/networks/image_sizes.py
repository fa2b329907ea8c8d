"""Sizes of the images that a network may take."""

from collections.abc import Iterator

from torch import nn

_USUAL = (224, 64, 32, 28, 96, 128, 160, 192, 240, 256, 299, 384)
_NAMES = ("img_size", "image_size")
"""Attributes in which modules of timm and torchvision keep the one size that they take."""


def image_sizes(network: nn.Module) -> tuple[int, ...]:
    """Sides of square images to try, in pixels: those that modules name, then usual ones."""
    return tuple(dict.fromkeys((*_named(network), *_USUAL)))


def _named(network: nn.Module) -> Iterator[int]:
    for module in network.modules():
        for name in _NAMES:
            size = getattr(module, name, None)
            side, *others = size if isinstance(size, (tuple, list)) and size else (size,)
            if type(side) is int and side > 0 and set(others) <= {side}:
                yield side
