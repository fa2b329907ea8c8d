"""The memory of a process: measured, and returned to the system."""

import subprocess
import sys

import numpy as np
import psutil
import pytest

from pocketune.device.memory.process import process_memory

ALLOCATE = """
import numpy as np
from pocketune.device.memory.process import process_memory
before = process_memory()
block = np.ones(50_000_000, np.uint8)
during = process_memory()
del block
after = process_memory()
for memory in (before, during, after):
    print(memory.current, memory.peak)
"""


def measured(prefix: str = "") -> list[tuple[int, int]]:
    done = subprocess.run(
        [sys.executable, "-c", prefix + ALLOCATE], capture_output=True, text=True, check=True
    )
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def test_agrees_with_psutil() -> None:
    resident = psutil.Process().memory_info().rss
    assert abs(process_memory().current - resident) < 0.1 * resident


def test_the_peak_stays_when_memory_is_given_back() -> None:
    (before, _), (during, during_peak), (after, after_peak) = measured()
    assert during - before > 45_000_000
    assert during_peak >= during
    assert during - after > 45_000_000
    assert after_peak > during_peak - 1_000_000  # the kernel counts to within some pages


def test_a_large_parent_does_not_count() -> None:
    block = np.ones(300_000_000, np.uint8)
    (_, peak), *_ = measured()
    assert block[-1] == 1
    assert peak < 200_000_000


PROCESS = """
import numpy as np
from pocketune.device.engine import onnx
from pocketune.device.train import run
from pocketune.device.memory.process import process_memory, reclaim
before = process_memory().current
reclaim()
print(before - process_memory().current)
values = np.random.default_rng(0).standard_normal((64, 64))
assert np.allclose(np.linalg.inv(values) @ values, np.eye(64))
from pocketune.device.use import evaluate, export
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is given back")
def test_a_process_gets_smaller_and_goes_on() -> None:
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="huge pages of Linux")
def test_a_run_takes_no_huge_pages() -> None:
    ask = "libc = ctypes.CDLL(None); print(libc.prctl(42, 0, 0, 0, 0), hasattr(libc, 'mallopt'))"
    code = "import ctypes; from pocketune.heap import save_memory; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}save_memory(); {ask}"], capture_output=True, check=True
    )
    disabled, of_glibc = done.stdout.split()
    assert disabled == (b"1" if of_glibc == b"True" else b"0")
