"""A supernet around a pretrained MobileNetV2, which is one of its sub-networks."""

from typing import Any

import torch
from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks import NetworkConfig, about
from pocketune.networks.architectures.mobilenet_v2 import STAGES
from pocketune.supernet.config import SubnetConfig
from pocketune.supernet.space import FIRST_BLOCK, Space, stored_name

NAME = "mobilenet_v2"
FIXED = ("channels", "width", "classes", "padding", "norm", "standardized", "feature_fusion")
"""What a pretrained network determines of its space."""
DEPTHS = tuple(blocks for _, _, blocks, _ in STAGES[1:-1])
KERNEL, EXPANSION = 3, STAGES[1][0]


def space_around(network: nn.Module, options: dict[str, Any]) -> Space:
    """The space of a MobileNetV2, with these options for the rest.

    Raises:
        PocketuneError: The network is none or was changed, or it is not in such a space.
    """
    config = _config(network)
    if given := [name for name in FIXED if name in options]:
        raise PocketuneError(f"{', '.join(given)} are those of the network; leave them out")
    space = Space(
        channels=NAME,
        width=config.width,
        classes=network.get_submodule("classifier.1").out_features,  # type: ignore[arg-type]
        padding=config.padding,
        norm=config.norm,
        standardized=config.standardized,
        feature_fusion=config.feature_fusion,
        **options,
    )
    if (
        max(DEPTHS) != space.depths[-1]
        or space.expansions[-1] != EXPANSION
        or space.kernels[-1] < KERNEL
        or space.first != "ordinary"
    ):
        raise PocketuneError(
            f"a supernet around MobileNetV2 needs blocks as large as its own: ordinary first "
            f"blocks, depths up to {max(DEPTHS)}, kernels from {KERNEL} and expansions up to "
            f"{EXPANSION}"
        )
    return space


def pretrained_config(space: Space) -> SubnetConfig:
    """The sub-network that has the depths and expansions of MobileNetV2, and its kernels.

    A space without kernels of 3 has the smallest that it has, with zeros around the 3x3 taps.
    """
    return SubnetConfig(
        depths=DEPTHS,
        kernels=(max(KERNEL, space.kernels[0]),) * space.blocks,
        expansions=(EXPANSION,) * space.blocks,
        module_groups=space.largest.module_groups,
        module_kernels=space.largest.module_kernels,
        size=space.sizes[-1],
    )


@torch.no_grad()
def fill(stored: nn.Module, network: nn.Module, space: Space) -> None:
    """Write the values of a MobileNetV2 into the largest sub-network, in place.

    Kernels go into the center of the larger ones, with zeros around. Blocks that the network does
    not have start as the identity, by a last norm with weight 0.

    Raises:
        PocketuneError: The network has modules of another shape than the space.
    """
    places = space.places(pretrained_config(space))
    own = stored.state_dict()
    for own_name, value in network.state_dict().items():
        name = stored_name(own_name, places)
        if name not in own:
            raise PocketuneError(
                f"the network has {name}, for which the space has no place: give the space lite "
                "residual modules if the network has them"
            )
        _write(own[name], value, name)
    for place in set(range(FIRST_BLOCK, FIRST_BLOCK + space.blocks)) - set(places):
        norm = stored.get_submodule(f"features.{place}.conv.3")
        nn.init.zeros_(norm.weight)  # type: ignore[arg-type]


def _write(target: Tensor, value: Tensor, name: str) -> None:
    if target.shape[:2] != value.shape[:2] or target.dim() != value.dim():
        raise PocketuneError(
            f"{name} of the network has shape {tuple(value.shape)}, and the space has "
            f"{tuple(target.shape)} for it"
        )
    if target.dim() < 4:
        target.copy_(value)
        return
    margin = (target.shape[-1] - value.shape[-1]) // 2
    target.zero_()
    target[..., margin : margin + value.shape[-1], margin : margin + value.shape[-1]] = value


def _config(network: nn.Module) -> NetworkConfig:
    facts = about(network)
    config = facts.config
    if config is None or config.name != NAME or config.hidden or facts.method is not None:
        raise PocketuneError(
            "a supernet can be made around a mobilenet_v2 of create_network, neither pruned nor "
            "adapted"
        )
    return config
