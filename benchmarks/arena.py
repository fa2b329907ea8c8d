"""The memory of the runtime's arena, by its pages."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path


def resident_arena(region: int) -> int:
    """Resident bytes of the arena of this process, which reserves a region of so many bytes.

    The C library writes the size of a block before it, with the second bit set if the block is a
    mapping of its own; the kernel may have merged the mapping with others.
    """
    page = mmap.PAGESIZE
    with Path("/proc/self/pagemap").open("rb") as pages:
        for start, end in readable_mappings():
            if end - start < region:
                continue
            pages.seek(start // page * 8)
            present = [byte >> 7 for byte in pages.read((end - start) // page * 8)[7::8]]
            for first in (number for number, is_there in enumerate(present) if is_there):
                size = int.from_bytes(ctypes.string_at(start + first * page + 8, 8), "little")
                if size & 7 == 2 and 0 < size - region <= 2 * page:
                    return page * sum(present[first : first + size // page])
    raise LookupError(f"no region of {region} bytes")


def readable_mappings() -> Iterator[tuple[int, int]]:
    """First address and end of this process's readable mappings without a name, as of a file."""
    with Path("/proc/self/maps").open() as maps:
        for line in maps:
            addresses, rights, _, _, _, *name = line.split()
            if rights[0] == "r" and not name:
                start, end = (int(address, 16) for address in addresses.split("-"))
                yield start, end
