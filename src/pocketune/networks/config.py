"""The description of a network as data, from which it can be rebuilt."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pocketune.errors import PocketuneError, check_choice, check_positive, real_number, whole_number

PADDINGS = ("symmetric", "same")
OUTPUT_STRIDES = (4, 8, 16, 32)
NORMS = ("batch", "group")
WRITTEN = ("name", "classes", "width", "padding", "feature_fusion")
"""Values of every description; others are written where they are not the usual ones."""


@dataclass(frozen=True)
class NetworkConfig:
    """Everything that determines a network's layers, and nothing about its weights.

    Attributes:
        name: Registered name, one of `list_networks()`.
        classes: Outputs of the last linear layer, or of the last convolution of a network that
            classifies pixels.
        width: Multiplier of every layer's channels, except those of a decode head.
        padding: `"symmetric"` (k // 2 zeros on every side, as PyTorch's own networks) or
            `"same"` (TensorFlow's rule: a strided convolution pads right and bottom first).
        feature_fusion: Keep the feature-fusion layer, the 1x1 convolution before pooling. A decode
            head reads it or not, whatever this is.
        hidden: Remaining hidden channels of each pruned block, by the block's module path.
        branches: Arguments of the `LiteResidual` of each block that has one, by the block's module
            path, for a network that was pretrained with these modules.
        backbone: Name of the network in front of the decode head, for a network that classifies
            pixels.
        head_channels: Channels of its decode head.
        output_stride: Side of the image over the side of the last feature map of the network, or
            of the backbone; strides beyond it become dilations. None for the network's own.
        norm: `"batch"`, or `"group"` for group norms of 8 channels a group in their places.
        standardized: Whether the kernels of convolutions with a norm are standardized.
        subnet: The choices that make a sub-network of a supernet, as
            `pocketune.supernet.Space.network_config` gives them. None for the smallest one.
        depth: Multiplier of the number of blocks of every stage, rounded up.
        first_blocks: How many blocks a network has that ends early, without feature fusion, or its
            backbone; None for all.

    Raises:
        PocketuneError: A value is out of range.
    """

    name: str
    classes: int = 1000
    width: float = 1.0
    padding: str = "symmetric"
    feature_fusion: bool = True
    hidden: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    backbone: str | None = None
    head_channels: int | None = None
    output_stride: int | None = None
    norm: str = "batch"
    standardized: bool = False
    subnet: Mapping[str, Any] | None = None
    depth: float = 1.0
    first_blocks: int | None = None

    def __post_init__(self) -> None:
        check_positive(classes=self.classes)
        for option in ("classes", "first_blocks", "head_channels", "output_stride"):
            if (value := getattr(self, option)) is not None:
                check_positive(**{option: value})
                object.__setattr__(self, option, whole_number(value))
        for option in ("width", "depth"):
            number = real_number(value := getattr(self, option))
            if number is None or not 0 < number <= 10:
                raise PocketuneError(f"{option}={value!r} must be a number above 0 and up to 10")
            object.__setattr__(self, option, number)
        check_choice(PADDINGS, padding=self.padding)
        object.__setattr__(self, "hidden", self._counts())
        branches = {block: dict(arguments) for block, arguments in self.branches.items()}
        object.__setattr__(self, "branches", branches)
        if self.subnet is not None:
            if not isinstance(self.subnet, Mapping):
                raise PocketuneError(f"subnet={self.subnet!r} must map choices to their values")
            object.__setattr__(self, "subnet", dict(self.subnet))
        if self.output_stride is not None:
            check_choice(OUTPUT_STRIDES, output_stride=self.output_stride)
        check_choice(NORMS, norm=self.norm)
        if not isinstance(self.standardized, bool):
            raise PocketuneError(f"standardized={self.standardized!r} must be True or False")

    def _counts(self) -> dict[str, int]:
        """`hidden`, so that no later change of what was given changes the config."""
        if isinstance(self.hidden, Mapping):
            counts = {block: whole_number(count) for block, count in self.hidden.items()}
            known = {block: count for block, count in counts.items() if count is not None}
            if len(known) == len(counts):
                return known
        raise PocketuneError(f"hidden={self.hidden!r} must give a whole number for each block")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        usual = NetworkConfig(self.name)
        return {
            name: value
            for name, value in asdict(self).items()
            if name in WRITTEN or value != getattr(usual, name)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "NetworkConfig":
        """The inverse of `to_dict`.

        Raises:
            PocketuneError: A key is unknown, the name is missing, or a value is invalid.
        """
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown or "name" not in values:
            wrong = f"unknown {', '.join(unknown)}" if unknown else "no name"
            raise PocketuneError(f"a network's description is not understood: {wrong}")
        return cls(**values)


def plain_only(config: NetworkConfig) -> None:
    """Check the options that a network has which knows no padding and no batch norms.

    Raises:
        PocketuneError: The config has another padding or norm, or standardized kernels.
    """
    usual = NetworkConfig(config.name)
    for option in ("padding", "norm", "standardized"):
        if getattr(config, option) != getattr(usual, option):
            raise PocketuneError(
                f"{config.name} exists with {option}={getattr(usual, option)!r} only"
            )
