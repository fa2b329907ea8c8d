"""The pages of libraries that are equal to their files."""

import subprocess
import sys
from pathlib import Path

import pytest

from pocketune.device.memory.libraries import (
    Mapping,
    clean_library_mappings,
    still_mapped,
    unloaded_libraries,
)

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is given back")

SMAPS = """\
1000-2000 r--p 00000000 fe:00 1                     /usr/lib/libone.so
Rss:                   4 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
2000-5000 r-xp 00001000 fe:00 1                     /usr/lib/libone.so
Anonymous:             0 kB
Swap:                  0 kB
5000-6000 r--p 00004000 fe:00 1                     /usr/lib/libone.so
Anonymous:             4 kB
Swap:                  0 kB
6000-7000 r--p 00005000 fe:00 1                     /usr/lib/libone.so
Anonymous:             0 kB
Swap:                  4 kB
7000-8000 rw-p 00006000 fe:00 1                     /usr/lib/libone.so
Anonymous:             0 kB
Swap:                  0 kB
8000-9000 r--p 00000000 fe:00 2                     /data/a photo of weights
Anonymous:             0 kB
Swap:                  0 kB
9000-a000 r-xp 00000000 00:00 0                     [vdso]
Anonymous:             0 kB
Swap:                  0 kB
a000-b000 r-xp 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
"""

DIVIDED = """
import ctypes, mmap, struct
import numpy.linalg
from pocketune.device.memory import libraries

libraries.divide_libraries()
divided = list(libraries._divided)
libraries.divide_libraries()  # once is enough
assert libraries._divided == divided
libraries.give_back_pages()
largest = max(divided, key=lambda mapping: mapping.size)
first = largest.start + (largest.size // 2) // 65536 * 65536  # the kernel would read 64 KiB

def resident():
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(first // mmap.PAGESIZE * 8)
        return [entry >> 63 for (entry,) in struct.iter_unpack("Q", pages.read(16 * 8))]

before = resident()
ctypes.string_at(first, 1)
print(sum(before), sum(resident()), libraries.TOGETHER // mmap.PAGESIZE)
values = numpy.eye(3) + 1
assert numpy.allclose(numpy.linalg.inv(values) @ values, numpy.eye(3))
"""

UNLOADED = """
import ctypes, importlib.util, mmap
from pocketune.device.memory import libraries

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
place = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
libc.mmap.argtypes = place
file = importlib.util.find_spec("_elementtree").origin
library = ctypes.CDLL(file)
libraries.divide_libraries()
(code,) = (m for m in libraries._divided if m.file == file and m.rights == "r-xp")
others = [m for m in libraries._divided if m.file != file]
libc.dlclose(ctypes.c_void_p(library._handle))

rights, fixed = mmap.PROT_READ | mmap.PROT_WRITE, 0x10
own = libc.mmap(code.start, code.size, rights, mmap.MAP_PRIVATE | mmap.MAP_ANON | fixed, -1, 0)
assert own == code.start
ctypes.memset(own, 7, code.size)
libraries.give_back_pages()
assert ctypes.string_at(own, code.size) == bytes([7]) * code.size
assert libraries._divided == others
"""

LARGE = """
import os, sys, threading
import ctypes
from pathlib import Path
from pocketune.device.memory import libraries

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
place = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
libc.mmap.argtypes = place
most = min(65530, int(Path("/proc/sys/vm/max_map_count").read_text()))
file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
size = most * libraries.TOGETHER
os.ftruncate(file, size)
code, private = 5, 2
start = libc.mmap(None, size, code, private, file, 0)
libraries.divide_libraries()
assert len(Path("/proc/self/maps").read_text().splitlines()) <= most // 2
divided = {m.start: m for m in libraries._divided}
assert divided[start].size == size  # whole, and its pages are given back
threading.Thread(target=print, args=("room for a thread",)).start()
"""


def test_only_what_the_file_still_has() -> None:
    found = clean_library_mappings(SMAPS.splitlines())
    # without mappings that the loader has written to, even if they are swapped out; without
    # writable mappings and without files that are not libraries
    assert [(m.start, m.size) for m in found] == [(0x1000, 0x1000), (0x2000, 0x3000)]


@needs_linux
def test_only_pages_that_are_needed_are_read_again() -> None:
    done = subprocess.run([sys.executable, "-c", DIVIDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after, together = map(int, done.stdout.split())
    assert before == 0
    assert 1 <= after <= together


@needs_linux
def test_memory_in_the_place_of_an_unloaded_library_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", UNLOADED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_linux
def test_a_program_of_large_libraries_keeps_mappings_for_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LARGE, str(tmp_path / "large.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "room for a thread\n"


def test_parts_of_a_mapping_are_the_mapping() -> None:
    one = Mapping(0x1000, 0x4000, "r-xp", "/one.so")
    parts = [Mapping(0x1000, 0x2000, "r-xp", "/one.so"), Mapping(0x3000, 0x2000, "r-xp", "/one.so")]
    assert still_mapped([one], parts) == [one]
    assert still_mapped([one], parts[:1]) == []
    other = Mapping(0x3000, 0x2000, "rw-p", "")
    assert still_mapped([one], [parts[0], other]) == []
    gap = Mapping(0x4000, 0x1000, "r-xp", "/one.so")
    assert still_mapped([one], [parts[0], gap]) == []


@needs_linux
def test_the_loader_counts() -> None:
    assert unloaded_libraries() >= 0
