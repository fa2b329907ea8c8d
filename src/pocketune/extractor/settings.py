"""How a feature extractor is adapted: each option once, for Python and for the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pocketune.device.memory.sizes import format_size, parse_size
from pocketune.options import check_options, documented, option
from pocketune.planner.limits import parse_time

_limit = partial(option, default=None, panel="Limits")
_option = partial(option, panel="Search")


@documented
@dataclass(frozen=True, kw_only=True)
class ExtractorSettings:
    """The limits that the sub-network has to keep, and how it is searched for.

    Raises:
        PocketuneError: A value is out of range; the message names it.
    """

    budget: int | str | None = _limit(
        "Limit of the peak memory of the whole process that trains the kit on the device, such as "
        "96MB.",
        metavar="SIZE",
        unset="no limit",
    )
    step_seconds: float | None = _limit(
        "Limit of a training step on this machine, in seconds.",
        metavar="SECONDS",
        unset="no limit",
        above=0,
    )
    macs: float | None = _limit(
        "Limit of the multiplications of a forward pass for one image, in millions.",
        metavar="MILLIONS",
        unset="no limit",
        above=0,
    )
    time: str | float | None = _limit(
        "Time limit of the whole command, such as 1h. It makes epochs, measured sub-networks and "
        "forecasts fewer. Building the kit cannot be made faster: its time is estimated and kept "
        "free, and a limit that leaves no room for the rest is refused.",
        metavar="TIME",
        unset="no limit",
    )
    epochs: int = _option(
        "Epochs in which the supernet is adapted to the photos.",
        default=50,
        metavar="N",
        at_least=1,
    )
    pairs: int = _option("Sub-networks that are measured.", default=500, metavar="N", at_least=20)
    size: int | None = _option(
        "Height and width of the images.",
        default=None,
        metavar="PIXELS",
        unset="searched for among those of the supernet",
        at_least=1,
    )
    batch: int = _option(
        "Images in a step, of the supernet and of the kit.", default=8, metavar="N", at_least=1
    )
    seed: int = _option("Random seed.", default=0, metavar="N", at_least=0)

    def __post_init__(self) -> None:
        check_options(self)
        _ = self.budget_bytes, self.seconds

    @property
    def budget_bytes(self) -> int | None:
        """The limit of memory in bytes."""
        return None if self.budget is None else parse_size(self.budget)

    @property
    def seconds(self) -> float | None:
        """The limit of time in seconds."""
        return None if self.time is None else parse_time(self.time)

    @property
    def evidence(self) -> dict[str, Any]:
        """What the measurements depend on, which a search within other limits can use again."""
        limits = ("budget", "step_seconds", "macs", "time")
        return {name: value for name, value in asdict(self).items() if name not in limits}

    @property
    def limits(self) -> dict[str, Any]:
        """The limits of a sub-network: bytes, seconds, and millions of multiplications."""
        return {"budget": self.budget_bytes, "step_seconds": self.step_seconds, "macs": self.macs}

    @property
    def limits_text(self) -> str:
        """The same in words."""
        told = []
        if self.budget_bytes is not None:
            told.append(f"the budget of {format_size(self.budget_bytes)}")
        if self.step_seconds is not None:
            told.append(f"{self.step_seconds:g} s for a step")
        if self.macs is not None:
            told.append(f"{self.macs:g} million multiplications")
        return " and ".join(told)
