"""Resident memory of this process: measure it, and return unused memory to the system."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path

from pocketune.device.machine import memory_limit
from pocketune.device.memory.libraries import divide_libraries, give_back_pages
from pocketune.device.memory.sizes import format_size
from pocketune.errors import PocketuneError
from pocketune.heap import trim


@dataclass(frozen=True)
class ProcessMemory:
    """Resident bytes of the whole process, now and at the peak so far."""

    current: int
    peak: int


if sys.platform == "linux":

    def process_memory() -> ProcessMemory:
        """Resident memory of this process, now and at its peak (about 50 microseconds).

        The peak is VmHWM and not that of `getrusage`, which survives `exec`: a process started
        by a large one would report its parent's peak.
        """
        try:
            with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - on the path of every step
                status = file.read()
        except OSError:  # some containers do not have it
            status = b""
        current = _kibibytes(status, b"VmRSS:")
        # The kernel counts on each processor separately, so the peak may lag behind.
        return ProcessMemory(current, max(current, _kibibytes(status, b"VmHWM:")))

    def _kibibytes(status: bytes, key: bytes) -> int:
        found = status.find(key)
        if found < 0:  # some sandboxes omit lines or the file
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return int(status[found + len(key) :].split(None, 1)[0]) * 1024

elif sys.platform == "darwin":

    class _TaskBasicInfo(ctypes.Structure):
        """`mach_task_basic_info` of <mach/task_info.h>, which is packed to 4 bytes."""

        _pack_ = 4
        _fields_ = (
            ("virtual_size", ctypes.c_uint64),
            ("resident_size", ctypes.c_uint64),
            ("resident_size_max", ctypes.c_uint64),
            ("user_time", ctypes.c_int32 * 2),
            ("system_time", ctypes.c_int32 * 2),
            ("policy", ctypes.c_int32),
            ("suspend_count", ctypes.c_int32),
        )

    _MACH_TASK_BASIC_INFO = 20
    _libc = ctypes.CDLL(None)

    def process_memory() -> ProcessMemory:
        """Resident memory of this process, now and at its peak."""
        info = _TaskBasicInfo()
        count = ctypes.c_uint32(ctypes.sizeof(info) // 4)
        task = ctypes.c_uint32.in_dll(_libc, "mach_task_self_")
        failed = _libc.task_info(
            task, _MACH_TASK_BASIC_INFO, ctypes.byref(info), ctypes.byref(count)
        )
        if failed:
            raise OSError(f"task_info failed with {failed}")
        return ProcessMemory(info.resident_size, info.resident_size_max)

elif sys.platform == "win32":
    from ctypes import wintypes

    class _Counters(ctypes.Structure):
        """`PROCESS_MEMORY_COUNTERS` of <psapi.h>."""

        _fields_ = (
            ("cb", wintypes.DWORD),
            ("page_fault_count", wintypes.DWORD),
            ("peak_working_set_size", ctypes.c_size_t),
            ("working_set_size", ctypes.c_size_t),
            ("quota_peak_paged_pool_usage", ctypes.c_size_t),
            ("quota_paged_pool_usage", ctypes.c_size_t),
            ("quota_peak_non_paged_pool_usage", ctypes.c_size_t),
            ("quota_non_paged_pool_usage", ctypes.c_size_t),
            ("pagefile_usage", ctypes.c_size_t),
            ("peak_pagefile_usage", ctypes.c_size_t),
        )

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.GetCurrentProcess.restype = wintypes.HANDLE
    _kernel32.K32GetProcessMemoryInfo.argtypes = (
        wintypes.HANDLE,
        ctypes.POINTER(_Counters),
        wintypes.DWORD,
    )

    def process_memory() -> ProcessMemory:
        """Resident memory of this process, now and at its peak (its working set)."""
        counters = _Counters(cb=ctypes.sizeof(_Counters))
        if not _kernel32.K32GetProcessMemoryInfo(
            _kernel32.GetCurrentProcess(), ctypes.byref(counters), counters.cb
        ):
            raise ctypes.WinError(ctypes.get_last_error())
        return ProcessMemory(counters.working_set_size, counters.peak_working_set_size)

else:

    def process_memory() -> ProcessMemory:
        """Peak resident memory of this process; the current one is not known here."""
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return ProcessMemory(peak, peak)


def file_bytes() -> int:
    """Resident bytes that equal files, which the system takes back first; 0 where it is unknown."""
    try:
        status = Path("/proc/self/status").read_bytes()
        return int(status.partition(b"RssFile:")[2].split(None, 1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        return 0


_RETURNED = 6_000_000
"""Bytes of libraries that a run needs now and then: under a limit, it reads them again and again.
Runs with a prediction of 66 MB needed 56, and the system ended them at 54."""
NUMPY_BYTES, RUNTIME_BYTES = 32_000_000, 42_000_000
"""Memory of a control group in which Python can import numpy, and ONNX Runtime too. With 2 MB less,
the system has ended processes meanwhile."""


def granted_bytes() -> int | None:
    """Resident bytes above which the system ends this process; None without such a limit.

    They exceed the limit by pages that equal files, which the system takes back first.
    """
    limit = memory_limit()
    return None if limit is None else limit + file_bytes() + _RETURNED


def check_group(needed: int, what: str) -> None:
    """Refuse what needs more memory than the limit of a container leaves.

    Args:
        needed: Resident bytes of the whole process then.
        what: What needs them, as the sentence names it.

    Raises:
        PocketuneError: The limit is smaller.
    """
    limit = memory_limit()
    if limit is not None and needed > limit:
        raise PocketuneError(
            f"{what} needs about {format_size(needed)} of memory, and the control group of this "
            f"process may have {format_size(limit)}: allow it more"
        )


def reclaim() -> None:
    """Return freed memory, and unmodified pages of libraries, to the system.

    Code that a library runs only once, when it is imported or opens a graph, stays resident: tens
    of megabytes. If such a page is needed again, it is read from its file, in about a microsecond
    if the file is in the system's cache. This works on Linux only. It is skipped after PyTorch has
    been imported, because such a process is large anyway.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    trim()
    if "onnxruntime" in sys.modules:  # the last and largest library of a run
        divide_libraries()
    give_back_pages()
