"""What building a kit takes: the processor's time of the whole process, and of its parts.

    python benchmarks/bench_compile.py [--data FOLDER] [--threads 1] [--methods last ...]
        [--source FOLDER --commit NAME]

MobileNetV2 with random weights for flowers at batch 8. Each kit is built in a fresh process, as
`pocketune kit build` does it: an 8-bit frozen part is calibrated on photos. Waiting threads sleep.
With --source, another version is measured: the `src` folder of its checkout, under the commit's
name. Results of both are kept and shown side by side. The script is skipped if the photos are
missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from data import parse, unpack
from report import keep, kept, table, write

NAME = "compile"
NOW = "now"
METHODS = ("last", "blocks", "mobiletl", "tinytl", "full")
SETTINGS = ((1.0, 224), (0.35, 128))
PARTS = ("prepare", "check_engine", "quantize_features")
"""Functions of the pipeline whose time is shown."""

BUILD = """
import json, os, resource, sys, time
from pathlib import Path

from pocketune.data import load_splits

photos, out, method, width, size, *parts = sys.argv[1:]
dataset = load_splits(photos, val_fraction=0.0).train
from pocketune.authoring import build_kit
from pocketune.compiler import pipeline
from pocketune.methods import create_method

taken = {}

def timed(name):
    function = getattr(pipeline, name)
    def run(*given, **named):
        began = time.process_time()
        try:
            return function(*given, **named)
        finally:
            taken[name] = time.process_time() - began
    setattr(pipeline, name, run)

for name in parts:
    timed(name)
build_kit(Path(out), network="mobilenet_v2", method=create_method(method), width=float(width),
          size=int(size), batch=8, photos=dataset,
          frozen_bits=8 if method in ("last", "mobiletl") else None)
print(json.dumps({
    "cpu": time.process_time(),
    "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    **taken,
}))
"""


def build(photos: Path, method: str, width: float, size: int, environment: Any) -> dict[str, float]:
    """Seconds of the processor in all and by parts, and the peak of memory in bytes."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = map(str, (photos, Path(scratch) / "kit", method, width, size, *PARTS))
        done = subprocess.run(
            [sys.executable, "-c", BUILD, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment},
        )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(results: dict[str, dict[str, Any]]) -> None:
    """Write the table: a line for each kit and version."""
    rows = [
        [
            *name.split(" | "),
            *(f"{found[part]:.1f}" if part in found else "" for part in ("cpu", *PARTS)),
            f"{found['memory'] / 1e6:,.0f}",
        ]
        for name, found in sorted(results.items(), key=lambda row: _order(row[0]))
    ]
    header = ["kit", "threads", "version", "CPU s", "tracing and lowering", "check"]
    write(
        NAME,
        "Building a kit",
        "MobileNetV2 for 12 classes of flowers, batch 8, random weights, 8-bit frozen parts "
        "calibrated on photos. Seconds of the processor for a whole process, imports included, and "
        "its peak in MB. Other work ran on the same cores, which makes all figures larger.\n\n"
        + table([*header, "calibration", "peak MB"], rows),
    )


def _order(name: str) -> tuple[int, float, int, bool]:
    kit, threads, version = name.split(" | ")
    method, width, *_ = kit.split()
    return int(threads), -float(width), METHODS.index(method), version == NOW


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--widths", nargs="+", type=float, default=[w for w, _ in SETTINGS])
    parser.add_argument("--source", type=Path, help="src folder of another version")
    parser.add_argument("--commit", default=NOW, help="its name in the table")
    options = parse(parser)
    environment = {"OMP_NUM_THREADS": str(options.threads)}
    if options.source is not None:
        environment["PYTHONPATH"] = str(options.source)
    results = kept(NAME)
    with tempfile.TemporaryDirectory() as scratch:
        photos = unpack(options.data, "flowers", Path(scratch)) / "train"
        for (width, size), method in product(SETTINGS, options.methods):
            if width in options.widths:
                name = f"{method} {width} {size} px | {options.threads} | {options.commit}"
                results[name] = build(photos, method, width, size, environment)
                keep(NAME, results)
                print(name, results[name], flush=True)
    report(results)


if __name__ == "__main__":
    main()
