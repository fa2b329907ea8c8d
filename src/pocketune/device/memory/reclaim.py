"""Return memory that this process does not use to the system."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_MADV_DONTNEED = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
_LARGEST_THRESHOLD = 1 << 25
"""The threshold that glibc itself reaches in a process that uses large blocks."""


def reclaim() -> None:
    """Return freed memory, and the pages of libraries that nothing has written to.

    The code that a library runs once, to be imported or to open a graph, stays resident although it
    is never needed again: tens of megabytes. A page that is needed after all is read from the file
    again, in about a microsecond while the system has the file in its cache. This works on Linux
    only. It is skipped after PyTorch has been imported, because such a process is large anyway.
    """
    if sys.platform != "linux" or "torch" in sys.modules:
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
    try:
        with _SMAPS.open(encoding="utf-8", errors="replace") as smaps:
            mappings = clean_library_mappings(smaps)
    except OSError:  # some sandboxes do not have it
        return
    for mapping in mappings:
        libc.madvise(ctypes.c_void_p(mapping.start), ctypes.c_size_t(mapping.size), _MADV_DONTNEED)


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Return freed blocks of 128 KiB and more to the system at once, with glibc.

    Opening a graph makes several copies of its weights, one after the other. If they were kept for
    reuse, all would be resident together. Afterwards blocks are kept, because every step needs
    blocks of the same sizes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        yield
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 17)
    try:
        yield
    finally:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)


@dataclass
class Mapping:
    """A mapping of a file into this process; ``written`` says whether it differs from the file."""

    start: int
    size: int
    rights: str
    file: str
    written: bool = False


def clean_library_mappings(smaps: Iterable[str]) -> list[Mapping]:
    """The mappings of libraries, from the lines of ``smaps``, that are equal to their files.

    They are read-only and were never written to. The loader writes addresses into some mappings
    before it makes them read-only; their pages are anonymous, or swapped out since.
    """
    mappings: list[Mapping] = []
    for line in smaps:
        key, *rest = line.split(None, 5)
        if not key.endswith(":"):
            start, end = (int(address, 16) for address in key.split("-"))
            file = rest[4].strip() if len(rest) == 5 else ""
            mappings.append(Mapping(start, end - start, rest[0], file))
        elif key in ("Anonymous:", "Swap:") and rest[0] != "0":
            mappings[-1].written = True
    libraries = {m.file for m in mappings if m.rights == "r-xp" and m.file.startswith("/")}
    return [
        m
        for m in mappings
        if m.file in libraries and m.rights in ("r-xp", "r--p") and not m.written
    ]
