"""The pages of libraries in this process that are equal to their files."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_MADV_RANDOM, _MADV_DONTNEED = 1, 4  # of <sys/mman.h>

TOGETHER = 2 * mmap.PAGESIZE
"""Bytes of a library that are read into memory together.

Each such part takes 0.2 kB in the kernel. With parts of one page, a training process is 2 MB
smaller and the kernel's share 2 MB larger; with four pages, the process is 3 MB larger and the
kernel's share 1 MB smaller.
"""


@dataclass
class Mapping:
    """A file that is mapped into this process; `written` says whether its pages were changed."""

    start: int
    size: int
    rights: str
    file: str
    written: bool = False


_divided: list[Mapping] = []


def give_back_pages() -> None:
    """Give back the pages of libraries; those that are needed are read again."""
    advise = ctypes.CDLL(None).madvise
    for mapping in _divided or _clean_mappings():
        size = ctypes.c_size_t(mapping.size)
        advise(ctypes.c_void_p(mapping.start), size, _MADV_DONTNEED)


def divide_libraries() -> None:
    """Divide the libraries that are loaded, so that only pages that are needed are read.

    The kernel by itself reads the 15 pages around each of them as well: 12 of the 20 MB of
    libraries in a training process. It does not read beyond the mapping of a page, and neighbors
    with different advice are mappings of their own.

    Libraries are divided once, because it takes a while to list thousands of mappings. Python
    unloads none, and the pages of those that are loaded later stay.
    """
    if _divided:
        return
    advise = ctypes.CDLL(None).madvise
    for mapping in _clean_mappings():
        end = mapping.start + mapping.size
        for part in range(mapping.start, end, 2 * TOGETHER):
            size = ctypes.c_size_t(min(TOGETHER, end - part))
            if advise(ctypes.c_void_p(part), size, _MADV_RANDOM):
                break  # a process has a limited number of mappings
        _divided.append(mapping)


def _clean_mappings() -> list[Mapping]:
    try:
        with _SMAPS.open(encoding="utf-8", errors="replace") as smaps:
            return clean_library_mappings(smaps)
    except OSError:  # some sandboxes do not have it
        return []


def clean_library_mappings(smaps: Iterable[str]) -> list[Mapping]:
    """The read-only mappings of libraries that are equal to their files, from `smaps`.

    The loader writes addresses into some mappings before it makes them read-only. Their pages are
    anonymous or swapped out.
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
        if m.file in libraries
        and m.rights.startswith("r-")
        and m.rights.endswith("p")
        and not m.written
    ]
