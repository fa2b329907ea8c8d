"""The smallest machine, in bytes of memory, in which a training run comes to its end.

    python benchmarks/bench_hard_limit.py [--kits NAME=KIT ...]

A control group of Linux gives `pocketune train` a hard limit: the kernel first takes back pages of
libraries, which are read again when they are used, and then kills the process. The smallest limit
is searched in steps of 4 MB; below it, at least one of two runs is killed. The kits are the bundled
ones and those of `bench_memory_causes.py`, with its photos. The user must be allowed to make such a
group, as root is with version 1 of control groups.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench_memory_causes import CAMERA, CLASSES, PHOTOS, ROWS, STEPS, build_kit
from data import write_photos
from report import table, write

GROUPS = Path("/sys/fs/cgroup/memory")
STEP, MOST = 4, 512
REPEATS = 2
ADAM8 = "MobileTL, 8-bit frozen part, batch 8, 224 px"
"""The kit that is also trained with Adam's moments in 8 bits."""

JOIN = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A group of processes that may take `limit` bytes; the file to join it."""
    group = GROUPS / f"bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def ends(arguments: list[str], limit: int) -> bool:
    """Whether a Python process ends with code 0 under a limit of so many MB."""
    with memory_group(limit * 10**6) as group:
        done = subprocess.run(
            [sys.executable, "-c", JOIN, str(group), *arguments], capture_output=True, check=False
        )
    return done.returncode == 0


def trains(arguments: list[str], scratch: Path, limit: int) -> bool:
    """Whether all of some runs end under a limit."""
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            train = ["-m", "pocketune", "train", *arguments, "--out", f"{folder}/run"]
            if not ends(train, limit):
                return False
    return True


def smallest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest limit in MB, between one that is too small and one that is not."""
    while high - low > STEP:
        middle = low + (high - low) // (2 * STEP) * STEP
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def peak(arguments: list[str], scratch: Path) -> float:
    """The peak in MB of the same run without a limit."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        train = ["-m", "pocketune", "train", *arguments, "--out", f"{folder}/run"]
        subprocess.run([sys.executable, *train], capture_output=True, check=True)
        return json.loads(Path(folder, "run", "result.json").read_text())["peak_memory"] / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kits", nargs="+", metavar="NAME=KIT", help="kits that exist")
    given = dict(each.split("=", 1) for each in parser.parse_args().kits or ())
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        photos = str(write_photos(scratch / "photos", CLASSES, PHOTOS, CAMERA, grain=40))
        jobs = {f"bundled {name}": (name, "adam") for name in ("last", "blocks")}
        for name, fields in ROWS.items():
            kit = given.get(name) or f"{scratch}/{fields[0]}"
            if name not in given:
                build_kit(*fields, photos, kit)
            jobs[name] = kit, "adam"
            if name == ADAM8:
                jobs[f"{name}, adam8"] = kit, "adam8"
        for name, (kit, optimizer) in jobs.items():
            arguments = [photos, "--kit", kit, "--steps", str(STEPS), "--optimizer", optimizer]
            taken = peak(arguments, scratch)
            fits = partial(trains, arguments, scratch)
            low = int(taken * 0.6) // STEP * STEP
            limit = smallest(fits, low, low + MOST)
            rows.append([name, f"{taken:.0f}", str(limit)])
            publish(rows)
        limit = smallest(partial(ends, ["-c", "import torch"]), 64, 64 + MOST)
        rows.append(["`import torch` alone", "", str(limit)])
        publish(rows)


def publish(rows: list[list[str]]) -> None:
    note = (
        "Peak of `pocketune train` without a limit, and the smallest hard limit of a control "
        f"group, in steps of {STEP} MB, under which {REPEATS} of {REPEATS} runs come to their end: "
        f"{STEPS} steps on photos of 640 x 480 and 12 classes, MobileNetV2 1.0 but for the bundled "
        "kits. The kernel takes back pages of libraries, so that a limit may lie below the peak."
    )
    heads = ["run", "peak MB", "smallest limit MB"]
    write("hard_limit", "The smallest machine for a run", f"{note}\n\n{table(heads, rows)}")


if __name__ == "__main__":
    main()
