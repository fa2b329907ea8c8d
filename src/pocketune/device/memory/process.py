"""Resident memory of this process, now and at its peak, with the standard library alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessMemory:
    """Resident bytes of the whole process: ``current`` now, ``peak`` at most so far."""

    current: int
    peak: int


if sys.platform == "linux":

    def process_memory() -> ProcessMemory:
        """Resident memory of this process, now and at its peak (about 50 microseconds).

        VmHWM and not ``getrusage``: the latter's maximum survives ``exec``, so that a process
        started by a large one would report its parent's size.
        """
        with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - on the path of every step
            status = file.read()
        current = _kibibytes(status, b"VmRSS:")
        # The kernel keeps its counters for each processor, so that the peak may lag behind.
        return ProcessMemory(current, max(current, _kibibytes(status, b"VmHWM:")))

    def _kibibytes(status: bytes, key: bytes) -> int:
        found = status.find(key)
        if found < 0:  # some sandboxes omit lines
            import resource

            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return int(status[found + len(key) :].split(None, 1)[0]) * 1024

elif sys.platform == "darwin":
    import ctypes

    class _TaskBasicInfo(ctypes.Structure):
        """``mach_task_basic_info`` of <mach/task_info.h>, which is packed to 4 bytes."""

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
    import ctypes
    from ctypes import wintypes

    class _Counters(ctypes.Structure):
        """``PROCESS_MEMORY_COUNTERS`` of <psapi.h>."""

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
