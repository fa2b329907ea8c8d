"""The space of sub-networks that share the weights of a supernet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from pocketune.errors import PocketuneError, check_choice, check_positive, check_type, real_number
from pocketune.layers import LiteResidual
from pocketune.layers.side_branch import TABLE_SIDE
from pocketune.networks import NetworkConfig
from pocketune.networks.architectures.ofa_mobilenet_v2 import (
    CHANNELS,
    FIRSTS,
    NAME,
    STRIDES,
    Subnet,
    plain_values,
)
from pocketune.networks.architectures.parts import make_divisible
from pocketune.networks.config import NORMS, PADDINGS
from pocketune.supernet.config import SubnetConfig, checked_numbers

CHOICES = ("depths", "kernels", "expansions", "module_groups", "module_kernels", "sizes")
FIRST_BLOCK = 2
"""Place of the first elastic block in `features`, after the stem and the first block."""


def block_path(number: int) -> str:
    """The path of an elastic block in a network, counted among those that run."""
    return f"features.{FIRST_BLOCK + number}"


def stored_name(name: str, places: Sequence[int]) -> str:
    """The name in the largest sub-network of a tensor of one with these `Space.places`."""
    part, _, rest = name.partition(".")
    if part != "features":
        return name
    number, _, rest = rest.partition(".")
    return f"features.{places[int(number)]}.{rest}"


@dataclass(frozen=True)
class Place:
    """What a block's place in the network determines.

    Attributes:
        inputs: Channels of its input.
        outputs: Channels of its output.
        stride: Its stride.
        side: Side of its input, as the rule for the kernels of the modules has it.
        reduced: Whether it is TinyTL's reduced block.
    """

    inputs: int
    outputs: int
    stride: int
    side: int
    reduced: bool


@dataclass(frozen=True, kw_only=True)
class Space:
    """Which sub-networks a supernet has: MobileNetV2's blocks in five stages and a last one.

    TinyTL, section 3.3, with the channels of ProxylessNAS; the defaults are the published choices.
    Each stage has an elastic depth, each block an elastic kernel and expansion, and beside each
    block except the first one may be a lite residual module of elastic groups and kernel.

    Attributes:
        channels: Output channels of the stages at width 1: `"ofa"`, or `"mobilenet_v2"`, whose
            pretrained weights are one of the sub-networks.
        width: Multiplier of every layer's channels.
        classes: Outputs of the classifier.
        depths: Possible numbers of blocks in a stage.
        kernels: Possible kernels of a block, odd.
        expansions: Possible expansions of a block, above 1.
        first: `"reduced"` makes the first block of the first stage TinyTL's reduced block, with a
            dense kernel of 3: for the largest sub-network 61 MB in place of 88.
        module_groups: Possible groups of the lite residual modules; empty for no modules. The
            smallest divides the others.
        module_kernels: Possible kernels of the modules, odd; on the small maps of the last stages,
            5 becomes 3, as for `TinyTL`.
        sizes: Possible sides of the images, in pixels.
        padding: As in `NetworkConfig`.
        norm: `"batch"`, or `"group"`, with which every sub-network has its own statistics.
        standardized: Whether kernels are standardized, after they are cut and transformed.
        feature_fusion: As in `NetworkConfig`.

    Raises:
        PocketuneError: A value is out of range.

    Example:
        >>> space = Space(width=0.35, depths=(1, 2), kernels=(3, 5), sizes=(64, 96))
        >>> space.blocks, space.smallest.depths, space.largest.size
        (11, (1, 1, 1, 1, 1), 96)
    """

    channels: str = "ofa"
    width: float = 1.0
    classes: int = 1000
    depths: tuple[int, ...] = (2, 3, 4)
    kernels: tuple[int, ...] = (3, 5, 7)
    expansions: tuple[int, ...] = (3, 4, 6)
    first: str = "ordinary"
    module_groups: tuple[int, ...] = ()
    module_kernels: tuple[int, ...] = ()
    sizes: tuple[int, ...] = (224,)
    padding: str = "symmetric"
    norm: str = "batch"
    standardized: bool = False
    feature_fusion: bool = True

    def __post_init__(self) -> None:
        for name in CHOICES:
            numbers = checked_numbers(name, getattr(self, name))
            object.__setattr__(self, name, tuple(sorted(set(numbers))))
        check_positive(classes=self.classes)
        width = real_number(self.width)
        if width is None or not 0 < width <= 10:
            raise PocketuneError(f"width={self.width!r} must be a number above 0 and up to 10")
        object.__setattr__(self, "width", width)
        check_choice(CHANNELS, channels=self.channels)
        check_choice(FIRSTS, first=self.first)
        check_choice(PADDINGS, padding=self.padding)
        check_choice(NORMS, norm=self.norm)
        self._check_choices()

    def _check_choices(self) -> None:
        if any(kernel % 2 == 0 for kernel in self.kernels + self.module_kernels):
            raise PocketuneError("kernels and module_kernels must be odd")
        if self.expansions[0] == 1:
            raise PocketuneError("expansions must be above 1, so that every block has one")
        if bool(self.module_groups) != bool(self.module_kernels):
            raise PocketuneError(
                "lite residual modules need both module_groups and module_kernels; give both or "
                "neither"
            )
        if any(groups not in (1, 2, 4, 8) for groups in self.module_groups):
            raise PocketuneError(
                f"module_groups={self.module_groups} must be 1, 2, 4 or 8, which divide all "
                "channels"
            )

    @property
    def has_modules(self) -> bool:
        """Whether the blocks have lite residual modules."""
        return bool(self.module_groups)

    @property
    def blocks(self) -> int:
        """Elastic blocks of the largest sub-network, the last one of fixed depth included."""
        return self.depths[-1] * len(STRIDES) + 1

    @property
    def largest(self) -> SubnetConfig:
        """The sub-network with the most of everything: modules of the fewest groups."""
        return self._of(-1)

    @property
    def smallest(self) -> SubnetConfig:
        """The sub-network with the least of everything: modules of the most groups."""
        return self._of(0)

    def _of(self, which: int) -> SubnetConfig:
        blocks = self.blocks
        groups = self.module_groups[::-1][which : which + 1 or None]
        return SubnetConfig(
            depths=(self.depths[which],) * len(STRIDES),
            kernels=(self.kernels[which],) * blocks,
            expansions=(self.expansions[which],) * blocks,
            module_groups=groups * blocks,
            module_kernels=self.module_kernels[which : which + 1 or None] * blocks,
            size=self.sizes[which],
        )

    def sample(self, rng: np.random.Generator) -> SubnetConfig:
        """A sub-network whose choices are drawn uniformly and independently of each other.

        Raises:
            PocketuneError: `rng` is not a generator of NumPy.
        """
        check_type(np.random.Generator, rng=rng)

        def draw(choices: tuple[int, ...], count: int) -> tuple[int, ...]:
            return tuple(rng.choice(choices, count).tolist()) if choices else ()

        return SubnetConfig(
            depths=draw(self.depths, len(STRIDES)),
            kernels=draw(self.kernels, self.blocks),
            expansions=draw(self.expansions, self.blocks),
            module_groups=draw(self.module_groups, self.blocks),
            module_kernels=draw(self.module_kernels, self.blocks),
            size=draw(self.sizes, 1)[0],
        )

    def active(self, config: SubnetConfig) -> list[int]:
        """Indices of the blocks that run, among `blocks`, in order."""
        deepest = self.depths[-1]
        inside = [s * deepest + p for s, depth in enumerate(config.depths) for p in range(depth)]
        return [*inside, self.blocks - 1]

    def places(self, config: SubnetConfig) -> list[int]:
        """For each part of a sub-network's `features`, its place in those of the largest one."""
        inside = (FIRST_BLOCK + block for block in self.active(config))
        return [*range(FIRST_BLOCK), *inside, FIRST_BLOCK + self.blocks]  # the last is the fusion

    def canonical(self, config: SubnetConfig) -> SubnetConfig:
        """The config with the smallest choices where they have no effect.

        Two configs give the same sub-network if this makes them equal.
        """
        places = [self.place(block) for block in range(self.blocks)]
        runs = set(self.active(config))
        has_kernel = {block for block in runs if not places[block].reduced}
        fits = {
            block
            for block, kernel in enumerate(config.module_kernels)
            if LiteResidual.fitting_kernel(kernel, places[block].side) == kernel
        }

        def settled(name: str, free: set[int]) -> tuple[int, ...]:
            pairs = zip(getattr(config, name), getattr(self.smallest, name), strict=True)
            return tuple(own if i in free else least for i, (own, least) in enumerate(pairs))

        return replace(
            config,
            kernels=settled("kernels", has_kernel),
            expansions=settled("expansions", runs),
            module_groups=settled("module_groups", runs),
            module_kernels=settled("module_kernels", runs & fits),
        )

    def check(self, config: SubnetConfig) -> None:
        """Raise if the space does not have this sub-network.

        Raises:
            PocketuneError: Naming the choice that it does not have, or it is not a SubnetConfig.
        """
        check_type(SubnetConfig, config=config)
        if config.size not in self.sizes:
            raise PocketuneError(
                f"the space has no images of {config.size} px; choose from {self.sizes}"
            )
        for name in CHOICES[:-1]:
            values, choices = getattr(config, name), getattr(self, name)
            count = len(STRIDES) if name == "depths" else self.blocks if choices else 0
            if len(values) != count:
                raise PocketuneError(
                    f"{name} of a sub-network of this space must have {count} numbers, not "
                    f"{len(values)}"
                )
            if strange := sorted(set(values) - set(choices)):
                raise PocketuneError(
                    f"the space has no {name} of {strange[0]}; choose from {choices}"
                )

    def network_config(self, config: SubnetConfig) -> NetworkConfig:
        """The description of a sub-network as a network of ours, for `create_network`.

        Raises:
            PocketuneError: As `check`.
        """
        self.check(config)
        config = self.canonical(config)
        active = self.active(config)
        subnet = Subnet(
            depths=config.depths,
            kernels=tuple(config.kernels[block] for block in active),
            expansions=tuple(config.expansions[block] for block in active),
            channels=self.channels,
            first=self.first,
        )
        return NetworkConfig(
            NAME,
            classes=self.classes,
            width=self.width,
            padding=self.padding,
            norm=self.norm,
            standardized=self.standardized,
            feature_fusion=self.feature_fusion,
            subnet=subnet.to_dict(),
            branches={
                block_path(number): self._module(config, block)
                for number, block in enumerate(active if self.has_modules else ())
            },
        )

    def _module(self, config: SubnetConfig, block: int) -> dict[str, int]:
        """The arguments of the lite residual module of a block."""
        place = self.place(block)
        return {
            "inputs": place.inputs,
            "outputs": place.outputs,
            "kernel": LiteResidual.fitting_kernel(config.module_kernels[block], place.side),
            "stride": place.stride,
            "groups": config.module_groups[block],
        }

    def place(self, block: int) -> Place:
        """Where a block is in the network, which no choice changes."""
        base = CHANNELS[self.channels]
        widths = [make_divisible(n * self.width) for n in (base.first, *base.stages, base.last)]
        stage, number = divmod(block, self.depths[-1])
        strides = (*STRIDES, 1)
        before = stage if number == 0 else stage + 1
        return Place(
            inputs=widths[before],
            outputs=widths[stage + 1],
            stride=strides[stage] if number == 0 else 1,
            side=TABLE_SIDE // prod(strides[:before]),
            reduced=block == 0 and self.first == "reduced",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return plain_values(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Space":
        """The inverse of `to_dict`.

        Raises:
            PocketuneError: A key is unknown, or a value is invalid.
        """
        if not isinstance(values, Mapping) or set(values) - set(cls.__dataclass_fields__):
            raise PocketuneError(f"the description of a space is not understood: {values!r}")
        return cls(**values)
