"""What the processor can do that decides how a graph is computed."""

import os
import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def available_cores() -> int:
    """Cores that this process may use: threads beyond them would only wait for each other."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def products_saturate() -> bool:
    """Whether sums of uint8 x int8 products may overflow 16 bits and be cut off.

    So it is on x86 without the VNNI instructions. Where an x86 processor does not tell, the
    answer is yes, which costs a little speed and no accuracy.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in _CPUINFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
