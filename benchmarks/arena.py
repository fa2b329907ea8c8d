"""The memory of the runtime's arena, by its pages."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path


def resident_arena(region: int) -> int:
    """Resident bytes of the arena of this process, which reserves a region of so many bytes.

    The C library writes the size of a block before it, with the second bit set if the block is a
    mapping of its own; the kernel may have merged the mapping with others.
    """
    proc, page = Path("/proc/self"), mmap.PAGESIZE
    with (proc / "maps").open() as maps, (proc / "pagemap").open("rb") as pages:
        for line in maps:
            (start, end), rest = (int(x, 16) for x in line.split()[0].split("-")), line.split()[1:]
            if len(rest) > 4 or rest[0][0] != "r" or end - start < region:
                continue
            pages.seek(start // page * 8)
            present = [byte >> 7 for byte in pages.read((end - start) // page * 8)[7::8]]
            for first, is_there in enumerate(present):
                if not is_there:
                    continue
                size = int.from_bytes(ctypes.string_at(start + first * page + 8, 8), "little")
                if size & 7 == 2 and 0 < size - region <= 2 * page:
                    return page * sum(present[first : first + size // page])
    raise LookupError(f"no region of {region} bytes")
