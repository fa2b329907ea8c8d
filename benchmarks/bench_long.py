"""Long and large: a million steps, 100,000 photos, 10,000 classes.

    python benchmarks/bench_long.py [--parts steps photos classes] [--steps 1000000]
        [--photos 100000] [--classes 10000]

`steps` trains the smallest kit of the tests, whose step takes about a millisecond, and looks at its
process a thousand times: resident memory, file descriptors and threads. The slopes are those of
least squares over all looks after the first tenth. `photos` and `classes` train the bundled kit
`last` for a few steps by `pocketune train` in a fresh process, on few and on many photos and
classes, and compare the peak (VmHWM) with what the run predicts. Photos are JPEGs of 32 x 24.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench_memory import WORK
from report import keep, kept, table, write

NAME = "long"
ROOT = Path(__file__).parents[1]
LOOKS = 1000
FEW_PHOTOS, FEW_CLASSES = 1000, 10
PHOTOS_OF_A_CLASS = 2

WATCHED = """
import json, os, sys, threading
from pocketune.device.memory.process import process_memory
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

kit, photos, out, steps, every = sys.argv[1:]

class Watch(Silent):
    def step(self, report):
        if report.step % int(every) == 0:
            memory = process_memory()
            look = [report.step, memory.current, memory.peak, len(os.listdir("/proc/self/fd")),
                    threading.active_count()]
            print(json.dumps(look), flush=True)

train(kit, photos, out, steps=int(steps), lr=0.01, progress=Watch())
memory = process_memory()
print(json.dumps([int(steps), memory.current, memory.peak, len(os.listdir("/proc/self/fd")),
                  threading.active_count()]), flush=True)
"""
"""Trains, and prints a line for each look at itself: the last one after the end of the run."""


def many_steps(scratch: Path, steps: int) -> dict[str, Any]:
    """Train a tiny kit for so many steps, and look at its process."""
    sys.path.insert(0, str(ROOT))
    from tests.device.runs import write_photos
    from tests.device.tiny_kit import CLASSES, TinyKit

    kit = TinyKit().write(scratch / "kit").path
    photos = write_photos(scratch / "photos", CLASSES, each=800)
    arguments = map(str, (kit, photos, scratch / "run", steps, max(1, steps // LOOKS)))
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    looks = np.array([json.loads(line) for line in done.stdout.splitlines()], float)
    settled, end = looks[len(looks) // 10 : -1], looks[-1]
    slopes = [np.polyfit(settled[:, 0] / 1e6, settled[:, column], 1)[0] for column in (1, 3, 4)]
    return {
        "steps": steps,
        "bytes": round(slopes[0]),
        "descriptors": round(slopes[1], 3),
        "threads": round(slopes[2], 3),
        "first": settled[0, 1],
        "last": settled[-1, 1],
        "peak_of_steps": settled[-1, 2],
        "peak": end[2],
        "most_descriptors": settled[:, 3].max(),
        "log": (scratch / "run" / "metrics.jsonl").stat().st_size,
    }


def large_run(scratch: Path, photos: int, classes: int) -> dict[str, Any]:
    """Train on so many photos of so many classes for a few steps."""
    folder = draw(scratch / f"{photos} of {classes}", photos, classes)
    command = ["train", folder, "--kit", "last", "--out", scratch / f"run {photos} {classes}"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WORK, *map(str, command), "--steps", "8"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("MEMORY "))
    facts = json.loads(line.removeprefix("MEMORY "))
    return {"photos": photos, "classes": classes, "seconds": time.monotonic() - began, **facts}


def draw(folder: Path, photos: int, classes: int) -> Path:
    """Small JPEGs: a few pictures of each class, linked under many names."""
    rng = np.random.default_rng(0)
    for number in range(classes):
        group = folder / f"class {number:05}"
        group.mkdir(parents=True)
        color = rng.integers(0, 256, 3)
        noise = np.clip(rng.normal(color, 30, (24, 32, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(noise).save(group / "0.jpg")
        for copy in range(1, photos // classes):
            (group / f"{copy}.jpg").write_bytes((group / "0.jpg").read_bytes())
    return folder


def publish(results: dict[str, Any]) -> None:
    """Write what was measured so far."""
    keep(NAME, results)
    parts = []
    if "steps" in results:
        row = results["steps"]
        parts.append(
            f"{row['steps']:,} steps of the tests' tiny kit, with a validation every "
            f"540 steps: resident memory grows by {row['bytes'] / 1e3:+.0f} kB a million steps "
            f"(from {row['first'] / 1e6:.2f} to {row['last'] / 1e6:.2f} MB after the first tenth), "
            f"file descriptors by {row['descriptors'] + 0:.3g} and threads by "
            f"{row['threads'] + 0:.3g}. "
            f"The peak is {row['peak_of_steps'] / 1e6:.1f} MB while it trains and "
            f"{row['peak'] / 1e6:.1f} MB once its log of {row['log'] / 1e6:.0f} MB has been "
            "summed up."
        )
    rows = [
        [
            f"{row['photos']:,}",
            f"{row['classes']:,}",
            f"{row['predicted'] / 1e6:.1f}",
            f"{row['peak'] / 1e6:.1f}",
            f"{row['seconds']:.0f}" if "seconds" in row else "",
        ]
        for key, row in results.items()
        if key != "steps"
    ]
    if rows:
        header = ["photos", "classes", "predicted MB", "measured MB", "seconds"]
        note = (
            "The bundled kit `last`, every default but eight steps; the whole process. The seconds "
            "are those of the whole command: reading the names, the features of all photos for the "
            "computed classifier, steps and validation."
        )
        parts.append(f"{note}\n\n{table(header, rows)}")
    write(NAME, "Long and large runs", "\n\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = ("steps", "photos", "classes")
    parser.add_argument("--parts", nargs="+", choices=names, default=list(names))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--photos", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=10_000)
    options = parser.parse_args()
    sizes = {
        "few": (FEW_PHOTOS, FEW_CLASSES),
        "photos": (options.photos, FEW_CLASSES),
        "classes": (PHOTOS_OF_A_CLASS * options.classes, options.classes),
    }
    results = kept(NAME)
    for part in dict.fromkeys(["few", *options.parts]):
        with tempfile.TemporaryDirectory() as folder:
            if part == "steps":
                results[part] = many_steps(Path(folder), options.steps)
            elif part != "few" or {"photos", "classes"} & set(options.parts):
                results[part] = large_run(Path(folder), *sizes[part])
        publish(results)


if __name__ == "__main__":
    main()
