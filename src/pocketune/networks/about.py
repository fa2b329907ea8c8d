"""The declared facts of a network, such as its config and its normalization."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pocketune.networks.config import NetworkConfig


@dataclass(frozen=True)
class Normalization:
    """Pixels in [0, 1] become `(pixel - mean) / std`, channel by channel (red, green, blue)."""

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    IMAGENET: ClassVar["Normalization"]
    HALF: ClassVar["Normalization"]

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (N, H, W, 3) to normalized float32 (N, 3, H, W), on the device of the images."""
        # by rows of the picture: a runtime works fast along the last axis, if it has more than 3
        width, device = images.shape[2], images.device
        scale = torch.tensor([1 / (255 * s) for s in self.std], device=device).repeat(width)
        shift = torch.tensor(
            [-m / s for m, s in zip(self.mean, self.std, strict=True)], device=device
        ).repeat(width)
        rows = images.flatten(2).float() * scale + shift
        return rows.view_as(images).permute(0, 3, 1, 2)


Normalization.IMAGENET = Normalization()
Normalization.HALF = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True)
class About:
    """Facts that no module or tensor of a network tells; copies of the network have them too.

    Attributes:
        config: how to build the network again; None for a network that is not ours.
        normalization: of the images that it takes.
        method: the `pocketune.methods.Method`, resolved, that the network is adapted to, if any.
        frozen_bits: in which the kernels of frozen convolutions are stored, 32 or 8.
        filter_chains: filtered convolutions that hand their gradients on in patches, each chain
            the paths of its layers in the order in which they run.
        is_side_branch: whether the module runs beside a block, where a method has added it.
    """

    config: NetworkConfig | None = None
    normalization: Normalization = Normalization.IMAGENET
    method: Any = None  # methods are above networks, which know no class of theirs
    frozen_bits: int = 32
    filter_chains: tuple[tuple[str, ...], ...] = ()
    is_side_branch: bool = False


def about(network: nn.Module) -> About:
    """The facts of a network; the defaults for a network of which nothing is declared.

    Example:
        >>> from pocketune import create_network
        >>> about(create_network("mobilenet_v2", classes=10)).config.classes
        10
    """
    facts = vars(network).get("about")
    return facts if isinstance(facts, About) else About()


def set_about(network: nn.Module, **facts: Any) -> None:
    """Declare some of the facts of a network by their names in `About`; the others stay."""
    vars(network)["about"] = replace(about(network), **facts)


def normalize(network: nn.Module, images: Tensor | NDArray[np.uint8]) -> Tensor:
    """uint8 images (N, H, W, 3) as `network` takes them: float32 (N, 3, H, W)."""
    return about(network).normalization(
        images if isinstance(images, Tensor) else torch.from_numpy(images)
    )
