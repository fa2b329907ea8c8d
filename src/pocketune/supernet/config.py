"""One sub-network of a supernet, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketune.errors import PocketuneError
from pocketune.networks.architectures.ofa_mobilenet_v2 import plain_values, whole_numbers


def checked_numbers(name: str, values: Any) -> tuple[int, ...]:
    """The whole numbers of a choice; those of modules may be none.

    Raises:
        PocketuneError: They are something else.
    """
    may_be_none = name.startswith("module")
    return () if may_be_none and not len(values) else whole_numbers(name, values)


@dataclass(frozen=True, kw_only=True)
class SubnetConfig:
    """The choices of a sub-network, for every block of the largest one.

    Choices of blocks that the depths leave out have no effect; `Space.canonical` makes them equal.
    Blocks are in order, stage by stage, with the last block, of a stage of its own, at the end;
    stem and first block have no choices and are left out.

    Attributes:
        depths: Blocks that run in each of the five stages.
        kernels: Kernel of each block.
        expansions: Hidden channels of each block over its input channels.
        module_groups: Groups of the lite residual module of each block; empty without modules.
        module_kernels: Largest kernel of each module; empty without modules.
        size: Side of the images, in pixels.

    Raises:
        PocketuneError: A value is not understood. `Space.check` says whether a space has it.

    Example:
        >>> from pocketune.supernet import Space
        >>> smallest = Space().smallest
        >>> SubnetConfig.from_dict(smallest.to_dict()) == smallest
        True
    """

    depths: tuple[int, ...]
    kernels: tuple[int, ...]
    expansions: tuple[int, ...]
    module_groups: tuple[int, ...] = ()
    module_kernels: tuple[int, ...] = ()
    size: int = 224

    def __post_init__(self) -> None:
        for name in ("depths", "kernels", "expansions", "module_groups", "module_kernels"):
            object.__setattr__(self, name, checked_numbers(name, getattr(self, name)))
        whole_numbers("size", [self.size])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the choices of modules if there are none."""
        return {name: value for name, value in plain_values(self).items() if value != []}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SubnetConfig":
        """The inverse of `to_dict`.

        Raises:
            PocketuneError: A key is unknown or missing, or a value is invalid.
        """
        known = cls.__dataclass_fields__
        needed = {"depths", "kernels", "expansions"}
        if not isinstance(values, Mapping) or set(values) - set(known) or needed - set(values):
            raise PocketuneError(
                f"the sub-network {values!r} is not understood: its keys are {', '.join(known)}"
            )
        return cls(**values)
