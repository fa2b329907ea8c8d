"""The pages of libraries in this process that are equal to their files."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SMAPS, _MAPS = Path("/proc/self/smaps"), Path("/proc/self/maps")
_MAX_MAPS, _USUAL_MAX = Path("/proc/sys/vm/max_map_count"), 65530
_MADV_RANDOM, _MADV_DONTNEED = 1, 4  # of <sys/mman.h>

TOGETHER = 2 * mmap.PAGESIZE
"""Bytes of a library that are read into memory together.

Each such part takes 0.2 kB in the kernel. With parts of one page, a training process is 2 MB
smaller and the kernel's share 2 MB larger; with four pages, the process is 3 MB larger and the
kernel's share 1 MB smaller.
"""


class _Loaded(ctypes.Structure):
    """What the dynamic loader says of a library: the first fields of `dl_phdr_info` of <link.h>."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
        ("unloads", ctypes.c_ulonglong),
    )


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)


@dataclass
class Mapping:
    """A file that is mapped into this process; `written` says whether its pages were changed."""

    start: int
    size: int
    rights: str
    file: str
    written: bool = False


_lock = threading.Lock()
_divided: list[Mapping] = []
_unloads = 0  # of libraries, when `_divided` was last compared with the process


def give_back_pages() -> None:
    """Give back the pages of libraries; those that are needed are read again."""
    with _lock:
        _forget_unloaded()
        mappings = list(_divided)
    advise = ctypes.CDLL(None).madvise
    for mapping in mappings or _clean_mappings():
        size = ctypes.c_size_t(mapping.size)
        advise(ctypes.c_void_p(mapping.start), size, _MADV_DONTNEED)


def divide_libraries() -> None:
    """Divide the libraries that are loaded, so that only pages that are needed are read.

    The kernel by itself reads the 15 pages around each of them as well: 12 of the 20 MB of
    libraries in a training process. It does not read beyond the mapping of a page, and neighbors
    with different advice are mappings of their own.

    Libraries are divided once, because it takes a while to list thousands of mappings. The pages of
    those that are loaded later stay.

    A process has a limited number of mappings, and without any left it can neither start a thread
    nor allocate much memory. Half of them stay for the program that this process belongs to, and
    the largest of its libraries may not be divided.
    """
    global _unloads
    with _lock:
        if _divided:
            return
        _unloads = unloaded_libraries()
        found = sorted(_clean_mappings(), key=lambda mapping: mapping.size)
        room = _most_mappings() // 2 - len(_mapped(_MAPS))
        advise = ctypes.CDLL(None).madvise
        for mapping in found:
            room -= mapping.size // TOGETHER
            if room < 0:
                break
            end = mapping.start + mapping.size
            for part in range(mapping.start, end, 2 * TOGETHER):
                size = ctypes.c_size_t(min(TOGETHER, end - part))
                advise(ctypes.c_void_p(part), size, _MADV_RANDOM)
        _divided.extend(found)


def _most_mappings() -> int:
    """How many mappings a process may have, at most the usual number: each takes memory."""
    with suppress(OSError, ValueError):
        return min(_USUAL_MAX, int(_MAX_MAPS.read_text(encoding="ascii")))
    return _USUAL_MAX


def _forget_unloaded() -> None:
    """Forget the mappings of libraries that are no longer there, if any has been unloaded.

    Their addresses may hold the program's own data by now, which `madvise` would erase. Python
    unloads no library, but the program or another library may.
    """
    global _unloads
    if _divided and _unloads != (now := unloaded_libraries()):
        _divided[:] = still_mapped(_divided, _mapped(_MAPS))
        _unloads = now


def _mapped(maps: Path) -> list[Mapping]:
    """All mappings, in the order of their addresses."""
    try:
        with maps.open(encoding="utf-8", errors="replace") as lines:
            return [_mapping(line) for line in lines]
    except OSError:
        return []


def still_mapped(known: Iterable[Mapping], now: Iterable[Mapping]) -> list[Mapping]:
    """Those of the `known` mappings that are still there, whole or as neighboring parts."""
    whole: list[Mapping] = []
    for part in now:
        last = whole[-1] if whole else None
        same = last and (last.file, last.rights) == (part.file, part.rights)
        if last and same and last.start + last.size == part.start:
            last.size += part.size
        else:
            whole.append(Mapping(part.start, part.size, part.rights, part.file))
    ends = [(m.start, m.start + m.size, m.rights, m.file) for m in whole]
    return [
        mapping
        for mapping in known
        if any(
            start <= mapping.start
            and mapping.start + mapping.size <= end
            and (rights, file) == (mapping.rights, mapping.file)
            for start, end, rights, file in ends
        )
    ]


def _mapping(line: str) -> Mapping:
    """The mapping of the first line of an entry in `smaps`, or of a line in `maps`."""
    addresses, rights, *rest = line.split(None, 5)
    start, end = (int(address, 16) for address in addresses.split("-"))
    return Mapping(start, end - start, rights, rest[3].strip() if len(rest) == 4 else "")


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
        key, *rest = line.split(None, 2)
        if not key.endswith(":"):
            mappings.append(_mapping(line))
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


def unloaded_libraries() -> int:
    """How many libraries this process has unloaded; 0 if its loader does not count them."""
    # With Python's lock, which a thread that imports holds while it waits for that of the loader.
    visit_all = getattr(ctypes.PyDLL(None), "dl_iterate_phdr", None)
    found = [0]

    def visit(library: ctypes._Pointer[_Loaded], size: int, _data: object) -> int:
        if size >= ctypes.sizeof(_Loaded):
            found[0] = library.contents.unloads
        return 1  # all libraries have the same count

    if visit_all is not None:
        visit_all(_Visit(visit), None)
    return found[0]
