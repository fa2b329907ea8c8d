"""The pages of libraries that are equal to their files."""

import subprocess
import sys

import pytest

from pocketune.device.memory.libraries import clean_library_mappings

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


def test_only_what_the_file_still_has() -> None:
    found = clean_library_mappings(SMAPS.splitlines())
    # without mappings that the loader has written to, even if they are swapped out; without
    # writable mappings and without files that are not libraries
    assert [(m.start, m.size) for m in found] == [(0x1000, 0x1000), (0x2000, 0x3000)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is given back")
def test_only_pages_that_are_needed_are_read_again() -> None:
    done = subprocess.run([sys.executable, "-c", DIVIDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after, together = map(int, done.stdout.split())
    assert before == 0
    assert 1 <= after <= together
