"""Whether budgets hold with the photos that people have.

    python benchmarks/bench_photo_budgets.py

Each of 14 kinds of photos lies in two class folders, beside ordinary ones. `pocketune train`,
`predict` and `evaluate` run on them with the bundled kit `last` in fresh processes, with each of
three budgets, and without one where one is refused. Measured is VmHWM, read after everything else.
A budget is broken if a process peaks above it. It is strict without need if a process is refused
that takes at most 90 % of it without a budget.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from report import keep, kept, table, write

NAME = "photo_budgets"
BUDGETS = 96, 160, 80
"""In MB."""
SHARE = 0.9
COMMANDS = "train", "predict", "evaluate"


class Kind(NamedTuple):
    """What a photo is saved as."""

    name: str
    size: tuple[int, int]
    mode: str
    format: str
    options: dict[str, Any]


KINDS = (
    Kind("JPEG", (640, 480), "RGB", "JPEG", {}),
    Kind("JPEG", (4000, 3000), "RGB", "JPEG", {}),
    Kind("progressive JPEG", (4000, 3000), "RGB", "JPEG", {"progressive": True}),
    Kind("CMYK JPEG", (4000, 3000), "CMYK", "JPEG", {}),
    Kind("RGBA PNG", (1440, 3200), "RGBA", "PNG", {"compress_level": 1}),
    Kind("PNG", (4000, 3000), "RGB", "PNG", {"compress_level": 1}),
    Kind("RGBA PNG", (4000, 3000), "RGBA", "PNG", {"compress_level": 1}),
    Kind("16-bit PNG", (4000, 3000), "I;16", "PNG", {"compress_level": 1}),
    Kind("GIF", (4000, 3000), "P", "GIF", {}),
    Kind("compressed TIFF", (2000, 1500), "RGB", "TIFF", {"compression": "tiff_lzw"}),
    Kind("WebP", (2000, 1500), "RGB", "WEBP", {"method": 0}),
    Kind("WebP", (4000, 3000), "RGB", "WEBP", {"method": 0}),
    Kind("AVIF", (2000, 1500), "RGB", "AVIF", {"speed": 10}),
    Kind("AVIF", (4000, 3000), "RGB", "AVIF", {"speed": 10}),
)

WORK = """
import sys
from pocketune.__main__ import main
try:
    main()
finally:
    with open("/proc/self/status") as status:
        peak = int(status.read().partition("VmHWM:")[2].split()[0]) * 1024
    print("PEAK", peak, flush=True)
"""


def draw(kind: Kind, folder: Path) -> None:
    """Ordinary photos and three of a kind, in two class folders."""
    rng = np.random.default_rng(0)
    for place in ("a", "b"):
        (folder / place).mkdir(parents=True)
    for number in range(20):
        coarse = rng.integers(0, 256, (24, 32, 4), dtype=np.uint8)
        if number < 17:
            image = Image.fromarray(coarse).convert("RGB").resize((640, 480))
            image.save(folder / "ab"[number % 2] / f"{number}.jpg")
            continue
        image = Image.fromarray(coarse).resize(kind.size)
        if kind.mode == "I;16":
            image = Image.fromarray(np.asarray(image)[..., 0].astype(np.uint16) * 257)
        path = folder / "ab"[number % 2] / f"{number}.{kind.format.lower()}"
        image.convert(kind.mode).save(path, kind.format, **kind.options)


def measure(command: str, photos: Path, budget: int | None) -> dict[str, Any]:
    """The peak of a process in bytes, and whether its budget was refused or broken."""
    with tempfile.TemporaryDirectory() as out:
        arguments = {
            "train": ["train", photos, "--kit", "last", "--out", f"{out}/run", "--steps", "6"],
            "predict": ["predict", photos.parent / "run", photos],
            "evaluate": ["evaluate", photos.parent / "run", photos],
        }[command]
        if budget is not None:
            arguments += ["--budget", f"{budget}MB"]
        done = subprocess.run(
            [sys.executable, "-c", WORK, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
    refused = "MB short" in done.stderr
    if done.returncode and not refused and "over the budget" not in done.stderr:
        raise RuntimeError(done.stderr)
    peak = int(done.stdout.rpartition("PEAK ")[2])
    return {"peak": peak, "refused": refused, "ended": done.returncode}


def prepare_run(folder: Path) -> None:
    """A run that predicts."""
    draw(KINDS[0], folder / "ordinary")
    command = ["train", folder / "ordinary", "--kit", "last", "--out", folder / "run"]
    subprocess.run(
        [sys.executable, "-m", "pocketune", *map(str, command), "--epochs", "1"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def judged(
    found: dict[str, Any] | None, free: dict[str, Any] | None, budget: int
) -> tuple[str, str]:
    """How a run kept its budget in MB, in a word and as a cell; `free` is that without one."""
    if found is None:
        return "missing", "not measured"
    peak, limit = f"{found['peak'] / 1e6:.1f}", budget * 1_000_000
    if found["peak"] > limit or (found["ended"] and not found["refused"]):
        return "broken", f"**{peak}, broken**"
    if found["refused"] and free and free["peak"] <= SHARE * limit:
        return "strict", "**refused without need**"
    return "kept", "refused" if found["refused"] else peak


def publish(results: dict[str, dict[str, Any]]) -> None:
    """The table, and how many budgets were broken or strict without need."""
    rows, told = [], Counter[str]()
    for (number, kind), command in product(enumerate(KINDS), COMMANDS):
        free = results.get(f"{number} {command} None")
        cells = []
        for budget in sorted(BUDGETS):
            what, cell = judged(results.get(f"{number} {command} {budget}"), free, budget)
            told[what] += 1
            cells.append(cell)
        size = " x ".join(map(str, kind.size))
        alone = f"{free['peak'] / 1e6:.1f}" if free else ""
        rows.append([kind.name, size, command, alone, *cells])
    drawn = len(KINDS) * len(COMMANDS) * len(BUDGETS)
    count, broken, strict = drawn - told["missing"], told["broken"], told["strict"]
    note = (
        f"Peak resident memory of the whole process, in MB, in {count} of {drawn} runs with a "
        f"budget; without one only where one is refused. Budgets broken: {broken or 'none'}. "
        f"Refused though the run takes at most {SHARE:.0%} of the budget without one: "
        f"{strict or 'none'}."
    )
    header = ["photos", "size", "command", "no budget"]
    header += [f"{budget} MB" for budget in sorted(BUDGETS)]
    title = "Budgets with the photos that people have"
    write(NAME, title, f"{note}\n\n{table(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="measure all runs again")
    options = parser.parse_args()
    results = {} if options.fresh else kept(NAME)
    with tempfile.TemporaryDirectory() as scratch:
        prepare_run(Path(scratch))
        for number, kind in enumerate(KINDS):
            draw(kind, Path(scratch) / str(number))

        def once(number: int, command: str, budget: int | None) -> dict[str, Any]:
            label = f"{number} {command} {budget}"
            if label not in results:
                results[label] = measure(command, Path(scratch) / str(number), budget)
                keep(NAME, results)
                print(label, results[label], file=sys.stderr, flush=True)
            return results[label]

        for budget, number, command in product(BUDGETS, range(len(KINDS)), COMMANDS):
            if once(number, command, budget)["refused"]:
                once(number, command, None)
    publish(results)


if __name__ == "__main__":
    main()
