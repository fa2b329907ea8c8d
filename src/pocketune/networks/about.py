"""The declared facts of a network, such as its config and its normalization."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pocketune.errors import PocketuneError, real_number
from pocketune.networks.checks import require_module
from pocketune.networks.config import NetworkConfig


@dataclass(frozen=True)
class Normalization:
    """Pixels in [0, 1] become `(pixel - mean) / std`, channel by channel (red, green, blue).

    `IMAGENET` is the default, `HALF` gives -1 to 1, `UNIT` leaves 0 to 1, and `PIXELS` 0 to 255.
    """

    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    IMAGENET: ClassVar["Normalization"]
    HALF: ClassVar["Normalization"]
    UNIT: ClassVar["Normalization"]
    PIXELS: ClassVar["Normalization"]

    def __post_init__(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            numbers = [real_number(v) for v in values] if isinstance(values, Sequence) else []
            known = [n for n in numbers if n is not None and isfinite(n)]
            if len(numbers) != 3 or len(known) != 3 or (name == "std" and min(known) <= 0):
                kind = "positive numbers" if name == "std" else "numbers"
                raise PocketuneError(
                    f"{name}={values!r} must be three {kind}, for red, green and blue"
                )

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 (N, H, W, 3) to float32 (N, 3, H, W), channels-last, on the images' device."""
        # by image rows: a runtime is fast along the last axis if that has more than 3 elements
        width, device = images.shape[2], images.device
        factors = [1 / (255 * s) for s in self.std]
        offsets = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        scale, shift = (
            torch.tensor(values, dtype=torch.float32, device=device).repeat(width)
            for values in (factors, offsets)
        )
        rows = images.flatten(2).float() * scale + shift
        return rows.view_as(images).permute(0, 3, 1, 2)


Normalization.IMAGENET = Normalization()
Normalization.HALF = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
Normalization.UNIT = Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
Normalization.PIXELS = Normalization((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


def check_normalization(given: object) -> None:
    """Check that a normalization is one.

    Raises:
        PocketuneError: It is something else.
    """
    if not isinstance(given, Normalization):
        raise PocketuneError(
            f"normalization={given!r} is not a Normalization; give Normalization.IMAGENET, "
            "Normalization.HALF (-1 to 1), Normalization.UNIT (0 to 1), Normalization.PIXELS "
            "(0 to 255) or Normalization(mean, std)"
        )


@dataclass(frozen=True)
class About:
    """Facts about a network that its modules and tensors do not show; copies keep them.

    Attributes:
        config: How to rebuild the network; None for a foreign network.
        name: What listings call a foreign network; None for the name of its class.
        normalization: Normalization of the images that the network takes.
        method: The resolved `pocketune.methods.Method` that the network is adapted to, if any.
        frozen_bits: Bits in which the kernels of frozen convolutions are stored, 32 or 8.
        filter_chains: Chains of filtered convolutions that pass their gradients on in patches,
            each with the paths of its layers in the order in which they run.
        is_side_branch: Whether the module is a branch that a method has added to a block.
        random_decode_head: Whether the decode head of a network that classifies pixels has random
            values, above a backbone that may be pretrained.
    """

    config: NetworkConfig | None = None
    name: str | None = None
    normalization: Normalization = Normalization.IMAGENET
    method: Any = None  # a Method; networks cannot import methods
    frozen_bits: int = 32
    filter_chains: tuple[tuple[str, ...], ...] = ()
    is_side_branch: bool = False
    random_decode_head: bool = False

    def __post_init__(self) -> None:
        check_normalization(self.normalization)


def about(network: nn.Module) -> About:
    """The declared facts of a network, or the defaults.

    A network of timm declares its normalization itself, in its `pretrained_cfg`.

    Example:
        >>> from pocketune import create_network
        >>> about(create_network("mobilenet_v2", classes=10)).config.classes
        10
    """
    require_module(network)
    facts = vars(network).get("about")
    if isinstance(facts, About):
        return facts
    declared = timm_normalization(network)
    return _NOTHING_DECLARED if declared is None else About(normalization=declared)


_NOTHING_DECLARED = About()


def name_of(network: nn.Module) -> str:
    """What listings call a network."""
    facts = about(network)
    return facts.config.name if facts.config else facts.name or type(network).__name__


def timm_normalization(network: nn.Module) -> Normalization | None:
    """The normalization that a network of timm declares; None for other networks."""
    facts = vars(network).get("pretrained_cfg")
    if not isinstance(facts, Mapping) or not facts.get("mean") or not facts.get("std"):
        return None
    # of a network of gray images, both have one number
    mean, std = (
        tuple(facts[name]) * (3 if len(facts[name]) == 1 else 1) for name in ("mean", "std")
    )
    return Normalization(mean, std)


def set_about(network: nn.Module, **facts: Any) -> None:
    """Declare facts of a network by their names in `About`; others stay as they are.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        >>> set_about(network, normalization=Normalization.HALF)
        >>> about(network).normalization
        Normalization(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    """
    vars(network)["about"] = replace(about(network), **facts)


def normalize(network: nn.Module, images: Tensor | NDArray[np.uint8]) -> Tensor:
    """uint8 images (N, H, W, 3) as `network` takes them: float32 (N, 3, H, W).

    Networks of ours get them channels-last, which is faster in PyTorch. Others may view their maps
    as vectors, as LeNet does, and get them contiguous.
    """
    facts = about(network)
    pixels = facts.normalization(images if isinstance(images, Tensor) else torch.from_numpy(images))
    return pixels if facts.config is not None else pixels.contiguous()
