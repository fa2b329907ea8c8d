"""Networks that classify images, as backbones of those that classify pixels."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from pocketune.errors import PocketuneError
from pocketune.networks.anatomy.anatomy import anatomy
from pocketune.networks.anatomy.modules import is_norm
from pocketune.networks.architectures.parts import Stage

Taps = Callable[[Sequence[Stage]], list[Stage]]
"""Chooses the stages whose outputs a decode head reads, in the order in which they run."""


@runtime_checkable
class Staged(Protocol):
    """A network that can be a backbone."""

    def stages(self, *, feature_fusion: bool) -> list[Stage]:
        """Its parts from the image to the last feature map, in the order in which they run."""
        ...


class Backbone(nn.ModuleDict):
    """Stages in a row, under the names that they have in torchvision's backbones.

    Args:
        stages: From the image on; those after the last tap are left out.
        taps: Names of the stages whose outputs are returned.

    Attributes:
        channels: Those of each output.

    Raises:
        PocketuneError: A stage is missing or empty.
    """

    def __init__(self, stages: Sequence[Stage], taps: Sequence[str]) -> None:
        names = [stage.name for stage in stages]
        if missing := [tap for tap in taps if tap not in names]:
            raise PocketuneError(
                f"the backbone has no stage {missing[0]}, which the decode head reads; give "
                "weights with the feature-fusion layer"
            )
        count = max(map(names.index, taps)) + 1
        super().__init__({stage.name: stage.module for stage in stages[:count]})
        self.taps = tuple(taps)
        self.channels = tuple(_output_channels(tap, self[tap]) for tap in taps)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Normalized images (N, 3, H, W) -> one feature map for each tap."""
        maps = []
        for name, module in self.items():
            x = module(x)
            if name in self.taps:
                maps.append(x)
        return maps


def last(stages: Sequence[Stage]) -> list[Stage]:
    """The last feature map."""
    return [stages[-1]]


def pyramid(stages: Sequence[Stage]) -> list[Stage]:
    """The last feature map of each stride from 4 on.

    Raises:
        PocketuneError: There are not two strides.
    """
    ends = {stage.stride: stage for stage in stages if stage.stride >= 4}
    if len(ends) < 2:
        raise PocketuneError(
            "a pyramid needs feature maps of two strides from 4 on: keep more first blocks"
        )
    return list(ends.values())


def first_of_8_and_last(stages: Sequence[Stage]) -> list[Stage]:
    """The first feature map of stride 8, and the last one.

    Raises:
        PocketuneError: None has this stride.
    """
    for stage in stages:
        if stage.stride == 8:
            return [stage, stages[-1]]
    raise PocketuneError("LR-ASPP needs a feature map of stride 8: keep more first blocks")


def stages_of(
    network: nn.Module, *, feature_fusion: bool, first_blocks: int | None = None
) -> list[Stage]:
    """The stages of a network, up to the one that ends with its first blocks.

    Raises:
        PocketuneError: It cannot be a backbone, or no stage ends there.
    """
    if not isinstance(network, Staged):
        raise PocketuneError(
            f"{type(network).__name__} cannot be a backbone: it has no method `stages`"
        )
    stages = network.stages(feature_fusion=feature_fusion)
    if first_blocks is None:
        return stages
    blocks = [network.get_submodule(block.name) for block in anatomy(network).blocks]
    reached = list(accumulate(_count(blocks, stage.module) for stage in stages))
    if first_blocks not in reached:
        ends = ", ".join(str(count) for count in dict.fromkeys(reached) if count)
        raise PocketuneError(
            f"first_blocks={first_blocks} is no end of a stage of {type(network).__name__}; "
            f"choose from {ends}"
        )
    return stages[: reached.index(first_blocks) + 1]


def _count(blocks: Sequence[nn.Module], stage: nn.Module) -> int:
    """How many of the blocks are in a stage."""
    inside = set(stage.modules())
    return sum(block in inside for block in blocks)


def _output_channels(name: str, stage: nn.Module) -> int:
    """Channels of the last norm: every block and layer here ends with one, up to activations."""
    norms = [part for part in stage.modules() if is_norm(part)]
    if not norms:
        raise PocketuneError(
            f"the backbone's weights end before stage {name}, which the decode head reads: keep "
            "fewer first blocks"
        )
    return len(norms[-1].get_parameter("weight"))
