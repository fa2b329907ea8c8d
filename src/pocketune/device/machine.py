"""The machine that this process runs on, as records of runs name it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "Hardware")
"""Lines of /proc/cpuinfo that name the processor on x86, or the board on ARM."""


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
    """Number of cores that this process may use; more threads would only wait for each other."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """The name in /proc/cpuinfo; empty on systems without it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = {key.strip(): value.strip() for key, _, value in (li.partition(":") for li in lines)}
    return next((values[name] for name in _NAMES if values.get(name)), "")
