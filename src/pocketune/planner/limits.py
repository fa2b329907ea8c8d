"""The limits that a user names: memory and time."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pocketune.device.memory.sizes import format_size, parse_size
from pocketune.errors import PocketuneError, real_number

PLANNING_SHARE = 0.15
"""Share of the time limit that planning may take; the rest is for training."""
SHORT_SHARE, SHORT_SECONDS = 0.4, 30.0
"""Under a short time limit, planning may take this share, up to these seconds: a process takes
seconds to start."""
PLANNING_SECONDS = 120.0
"""Seconds for planning where there is no time limit."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of planning and training together.

    Attributes:
        budget: Peak resident bytes of every training process; None for no limit.
        time: Seconds for planning and training together; None for no limit.
    """

    budget: int | None = None
    time: float | None = None

    @property
    def planning(self) -> float:
        """Seconds for planning."""
        if self.time is None:
            return PLANNING_SECONDS
        return max(PLANNING_SHARE * self.time, min(SHORT_SHARE * self.time, SHORT_SECONDS))

    @property
    def training(self) -> float:
        """Seconds that planning should leave for training."""
        return float("inf") if self.time is None else self.time - self.planning

    def check_process(self, process: int, least: int | None = None) -> None:
        """Refuse a budget that a process without any kit exceeds.

        Args:
            process: Resident bytes of a process that has imported everything training needs.
            least: Bytes that the smallest bundled kit needs, for the message.

        Raises:
            PocketuneError: The budget is too small for any kit.
        """
        if self.budget is not None and self.budget <= process:
            needed = "" if least is None else f": the smallest kit needs about {format_size(least)}"
            raise PocketuneError(
                f"the budget of {format_size(self.budget)} is smaller than the "
                f"{format_size(process)} that Python, numpy and the runtime take on this machine "
                f"before a kit is opened; give a larger budget{needed}"
            )


def make_limits(budget: str | int | None, time: str | float | None) -> Limits:
    """Limits from what a user writes.

    Raises:
        PocketuneError: A limit is not a size or a time.
    """
    return Limits(
        budget=None if budget is None else parse_size(budget),
        time=None if time is None else parse_time(time),
    )


def whole_megabytes(size: int) -> int:
    """The smallest budget in whole megabytes that holds so many bytes.

    >>> whole_megabytes(95_100_000)
    96000000
    """
    return -(-size // 10**6) * 10**6


def parse_time(text: str | float) -> float:
    """Seconds of a time such as `10m`, `90s`, `1h30m` or `600`.

    >>> parse_time("10m"), parse_time("1h30m"), parse_time(45)
    (600.0, 5400.0, 45.0)

    Raises:
        PocketuneError: The text is not a time, or the time is not above 0.
    """
    number = real_number(text)
    seconds = float(number) if number is not None else _seconds(str(text))
    if seconds is None or not 0 < seconds < float("inf"):
        raise PocketuneError(f"{text!r} is not a time above 0: write for example 10m, 90s or 1h30m")
    return seconds


def _seconds(text: str) -> float | None:
    """The sum of all parts; None if the text is anything else."""
    plain = text.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]*)", plain)
    if not parts or "".join(map("".join, parts)) != plain:
        return None
    if any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
