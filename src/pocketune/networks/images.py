"""What has to be true of images before a network measures something on them."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.image_sizes import image_channels
from pocketune.networks.probe import float_type


def image_batches(network: nn.Module, batches: object) -> Iterator[Tensor]:
    """The batches of images of an argument, each checked before it is given.

    Args:
        network: What takes the images.
        batches: An iterable of images (N, 3, H, W), or a tensor of equal batches.

    Raises:
        PocketuneError: It is something else; or as `require_images`.
    """
    if isinstance(batches, Tensor) and batches.dim() == 4:
        raise PocketuneError(
            "batches is one batch of images; give a list of batches, as in [images] or "
            "images.split(32)"
        )
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, Mapping)):
        raise PocketuneError(
            f"batches is of type {type(batches).__name__}; give a list of batches, each a float "
            "tensor (N, 3, H, W)"
        )
    return (_checked(network, batch, place) for place, batch in enumerate(batches))


def _checked(network: nn.Module, batch: object, place: int) -> Tensor:
    if isinstance(batch, (tuple, list)):
        raise PocketuneError(
            f"batch {place} of batches is a {type(batch).__name__}; give the images alone, as in "
            "[images for images, labels in loader]"
        )
    return require_images(network, batch, f"batch {place} of batches")


def require_images(network: nn.Module, images: object, name: str = "images") -> Tensor:
    """Check that images are a batch that a network may take.

    Args:
        network: What takes the images.
        images: float (N, 3, H, W), or with the channels of the network's first convolution.
        name: What the message calls them.

    Returns:
        The images.

    Raises:
        PocketuneError: They are of another type or shape, or hold a value that is not finite.
    """
    if isinstance(images, np.ndarray):
        raise PocketuneError(
            f"{name} is an array of NumPy; give a tensor, as torch.from_numpy makes it"
        )
    if not isinstance(images, Tensor):
        raise PocketuneError(
            f"{name} is of type {type(images).__name__}; give a float tensor (N, 3, H, W)"
        )
    if not images.is_floating_point():
        raise PocketuneError(f"{name} is {_name(images.dtype)}; give normalized floats")
    if images.dtype != (kind := float_type(network)):
        raise PocketuneError(
            f"{name} is {_name(images.dtype)}, and the network {_name(kind)}; give images of its "
            "type, or call network.float() first"
        )
    channels = image_channels(network)
    if images.dim() != 4 or images.shape[1] not in channels:
        raise PocketuneError(
            f"{name} has the shape {tuple(images.shape)}; give (N, {channels[0]}, H, W)"
        )
    if not images.is_meta and not images.isfinite().all():
        raise PocketuneError(f"{name} holds a value that is not finite; leave that image out")
    return images


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
