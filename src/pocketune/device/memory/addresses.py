"""The address space that a limit of the system, such as `ulimit -v`, leaves to this process.

Where libraries get no more of it, they end the process with lines of their own, or crash it. So the
limit is compared with what they are known to take before they are loaded or used.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from pathlib import Path

from pocketune.device.machine import available_cores
from pocketune.device.memory.sizes import format_size
from pocketune.errors import PocketuneError

_STATM = Path("/proc/self/statm")

# Measured on Linux with numpy 2.4 and ONNX Runtime 1.31.
_STACK = 8_400_000  # of each thread
_NUMPY = 78_000_000
_PRODUCTS = 33_600_000  # of numpy's linear algebra, for each of its threads
_RUNTIME = 65_000_000
_REGION = 1 << 25  # that the runtime's arena reserves at least; half more than a kit's arena else
_DECODING = 2  # threads


def check_addresses(needed: int, what: str) -> None:
    """Refuse what needs more address space than a limit leaves.

    Args:
        needed: Bytes beyond those that are taken.
        what: What needs them, as the sentence names it.

    Raises:
        PocketuneError: The limit leaves less.
    """
    limit = _limit()
    if limit is None:
        return
    taken = int(_STATM.read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
    if taken + needed > limit:
        raise PocketuneError(
            f"{what} needs about {format_size(taken + needed)} of address space, and this process "
            f"may have {format_size(limit)}: allow it more (ulimit -v)"
        )


def numpy_addresses() -> int:
    """Bytes that numpy takes when it is imported and first multiplies matrices."""
    return _NUMPY + _numpy_threads() * (_STACK + _PRODUCTS)


def runtime_addresses(threads: int) -> int:
    """Bytes that ONNX Runtime takes when it is imported, and the smallest kit beyond that."""
    return _RUNTIME + threads * _STACK + kit_addresses(0, 0)


def kit_addresses(resident: int, arena: int) -> int:
    """Bytes that computing with a kit takes.

    Args:
        resident: Bytes that are resident then and not yet.
        arena: Bytes of these in the runtime's arena.
    """
    return resident + max(arena // 2, _REGION - arena) + _PRODUCTS + _DECODING * _STACK


def _numpy_threads() -> int:
    """Threads of numpy's linear algebra."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        with suppress(ValueError):
            if (named := int(os.environ.get(name, ""))) > 0:
                return min(named, available_cores())
    return available_cores()


def _limit() -> int | None:
    """Bytes that this process may have; None without a limit, or where it cannot be told."""
    if sys.platform != "linux" or not _STATM.exists():
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft
