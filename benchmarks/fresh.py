"""Training in fresh processes: their peak memory, steps in turns, and a fair allocator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

KEEPING_ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "67108864",
}
"""Environment that lets glibc keep freed memory, which makes PyTorch up to 1.5 times as fast."""

RUN = """
import sys
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

kit, photos, out, steps, accumulate = sys.argv[1:]
result = train(kit, photos, out=out, steps=int(steps), accumulate=int(accumulate),
               val_fraction=0.0, progress=Silent())
print(result.peak_memory / 1e6)
"""


def kit_peak(kit: Path, photos: Path, out: Path, steps: int = 12, accumulate: int = 1) -> float:
    """Resident high-water mark in MB of a few steps: Python, runtime, decoding, Adam and all."""
    return peak(["-c", RUN, *map(str, (kit, photos, out, steps, accumulate))])


def keep_memory() -> None:
    """Restart this script with an allocator that keeps freed memory."""
    if KEEPING_ALLOCATOR.items() <= os.environ.items():
        return
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEPING_ALLOCATOR})


def peak(arguments: list[str]) -> float:
    """The number that a Python process prints last."""
    done = subprocess.run(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
    )
    return float(done.stdout.split()[-1])


class Worker:
    """A process of a script that makes steps when it is asked to.

    Args:
        script: The script; after `--worker`, it prints numbers for each line that it reads.
        of: What follows `--worker`.
        environment: Variables to set beside the present ones.
    """

    def __init__(
        self, script: str, *of: object, environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, script, "--worker", *map(str, of)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GOMP_SPINCOUNT": "10000", **(environment or {})},
        )

    def step(self) -> list[float]:
        """The numbers that it prints for its next step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [float(number) for number in self._process.stdout.readline().split()]

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate("")
