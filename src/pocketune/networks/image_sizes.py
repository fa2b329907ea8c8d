"""Sizes and channels of the images that a network may take."""

from collections.abc import Iterator

from torch import nn

from pocketune.networks.anatomy.modules import is_convolution

_USUAL = (224, 64, 32, 28, 96, 128, 160, 192, 240, 256, 299, 384)
_NAMES = ("img_size", "image_size")
"""Attributes in which modules of timm and torchvision keep the one size that they take."""


def image_sizes(network: nn.Module) -> tuple[int, ...]:
    """Sides of square images to try, in pixels: those that modules name, then usual ones."""
    return tuple(dict.fromkeys((*_named(network), *_USUAL)))


def image_channels(network: nn.Module) -> tuple[int, ...]:
    """Channels that images may have: those of the first convolution that is registered, and 3.

    That convolution may not be the one that reads the image.
    """
    first = next((m.in_channels for m in network.modules() if is_convolution(m)), 3)
    return tuple(dict.fromkeys((first, 3)))


def _named(network: nn.Module) -> Iterator[int]:
    for module in network.modules():
        for name in _NAMES:
            size = getattr(module, name, None)
            side, *others = size if isinstance(size, (tuple, list)) and size else (size,)
            if type(side) is int and side > 0 and set(others) <= {side}:
                yield side
