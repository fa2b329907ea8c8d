"""The heap returns what it should, and keeps what is used again."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is set elsewhere")

WORK = """
import ctypes, json
from pocketune.device.memory.process import process_memory
from pocketune.heap import KEPT, freed_at_once, save_memory

libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt"):
    raise SystemExit("no mallopt")
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def returned(size):
    "Whether the heap returns a block below one that is in use."
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    above = libc.malloc(100_000)
    ctypes.memset(above, 1, 100_000)
    during = process_memory().current
    libc.free(block)
    given = during - process_memory().current
    libc.free(above)
    return given > size // 2

save_memory()
found = {}
with freed_at_once():
    with freed_at_once():
        found["inner"] = returned(KEPT - 100_000)
    found["outer"] = returned(KEPT - 100_000)
found["large"] = returned(KEPT + 100_000)
found["small"] = returned(KEPT - 100_000)  # last: what the heap keeps serves any later block
print(json.dumps(found))
"""


def test_large_blocks_are_returned_and_small_ones_are_kept_except_in_the_context() -> None:
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=False)
    if "no mallopt" in done.stderr:
        pytest.skip("glibc only")
    assert done.returncode == 0, done.stderr
    expected = {"inner": True, "outer": True, "large": True, "small": False}
    assert json.loads(done.stdout) == expected
