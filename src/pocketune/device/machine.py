"""The machine that this process runs on, as records of runs name it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "Hardware")
"""Lines of /proc/cpuinfo that name the processor on x86, or the board on ARM."""
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds of processor time in each period, or `max`, and the period."""


@dataclass(frozen=True)
class Machine:
    """A machine, without anything that identifies its owner.

    Attributes:
        system: Name of the operating system, such as `Linux`.
        processor: Name of the processor; the name of its architecture if that is all there is.
        cores: Number of cores that the process may use.
        python: Version of Python.
    """

    system: str
    processor: str
    cores: int
    python: str

    @classmethod
    def current(cls) -> Machine:
        """This machine."""
        return cls(
            system=platform.system() or "unknown",
            processor=_processor() or platform.machine() or "unknown",
            cores=available_cores(),
            python=platform.python_version(),
        )


def available_cores() -> int:
    """Number of cores that this process may use; more threads would only wait for each other.

    The limit of a container counts too (`docker run --cpus 2`): the system stops the threads of a
    process that has used up its time, while others spin and use up the next.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(cores, _cpu_limit() or cores)


def _cpu_limit() -> int | None:
    """Whole cores whose time the control group may use, at least one; None without a limit."""
    try:
        time, period = map(int, _CPU_LIMIT.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no such file, or `max`
        return None
    return max(1, time // period)


def _processor() -> str:
    """The name in /proc/cpuinfo; empty on systems without it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = {key.strip(): value.strip() for key, _, value in (li.partition(":") for li in lines)}
    return next((values[name] for name in _NAMES if values.get(name)), "")
