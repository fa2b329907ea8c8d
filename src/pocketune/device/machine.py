"""The machine that this process runs on: its name, and the cores and memory that it allows."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "Hardware")
"""Lines of /proc/cpuinfo that name the processor on x86, or the board on ARM."""

_GROUPS = Path("/proc/self/cgroup")
"""A line for each control group of this process: number, controllers and path."""
_GROUP_FOLDER = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""A limit of version 1 from here on is none."""
_MEMINFO = Path("/proc/meminfo")


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
    """Whole cores whose time the process may use, at least one; None without a limit.

    The smallest limit of its control group and of those around it (`CPUQuota=` of systemd).
    """
    limits = []
    for folder, is_unified in _groups("cpu"):
        names = ("cpu.max",) if is_unified else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        try:
            text = " ".join((folder / name).read_text(encoding="ascii") for name in names)
            time, period = map(int, text.split())
        except (OSError, ValueError):  # no such file, or `max`
            continue
        if time > 0:  # version 1 has -1 for no limit
            limits.append(max(1, time // period))
    return min(limits, default=None)


def memory_limit() -> int | None:
    """Bytes above which the system ends this process without a word; None without such a limit.

    The smallest limit of its control group and of those around it (`docker run --memory 64m`,
    `MemoryMax=` of systemd), and the swap that is free, as far as these groups may use it: pages of
    the process may go there.
    """
    limits, swaps = [math.inf], [float(_free_swap())]
    for folder, is_unified in _groups("memory"):
        if is_unified:
            limits.append(_limit(folder / "memory.max"))
            most, taken = _limit(folder / "memory.swap.max"), folder / "memory.swap.current"
            swaps.append(most - _limit(taken) if most < math.inf else most)
        else:
            limits.append(_limit(folder / "memory.limit_in_bytes"))
            both = _limit(folder / "memory.memsw.limit_in_bytes")  # memory and swap together
            swaps.append(both - limits[-1] if both < math.inf else both)
    found = min(limits) + max(0, min(swaps))
    return int(found) if found < math.inf else None


def _limit(file: Path) -> float:
    """Bytes in a file of a control group; infinite without the file, or without a limit there."""
    try:
        limit = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or `max`
        return math.inf
    return limit if limit < _NO_LIMIT else math.inf


def _groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the control groups that may limit this process, and whether of version 2.

    Inside a container, the folder of the outermost group may be the container's own.
    """
    try:
        lines = _GROUPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:  # version 2
            folder = _GROUP_FOLDER
        elif controller in controllers.split(","):
            folder = _GROUP_FOLDER / controller
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        yield from ((folder / each, not controllers) for each in (group, *group.parents))


def _free_swap() -> int:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("SwapFree:"))
    return int(next(found, "0")) * 1024


def _processor() -> str:
    """The name in /proc/cpuinfo; empty on systems without it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = {key.strip(): value.strip() for key, _, value in (li.partition(":") for li in lines)}
    return next((values[name] for name in _NAMES if values.get(name)), "")
