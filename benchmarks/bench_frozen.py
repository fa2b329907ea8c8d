"""The frozen part in float32 and in 8 bits: time, memory, error and accuracy.

    python benchmarks/bench_frozen.py DATA [--rounds 30] [--size 224] [--threads 1]

DATA is a folder with ``weights/mbv2-w1.0.float32.safetensors`` and
``classification/oxford_flowers_12cls_224.zip``. MobileNetV2 1.0, its top three blocks trained. The
frozen parts run on one image; the processes take turns, and the ratio is the median of the pairs.
The peak is that of a process that runs the frozen part of one kit and nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from report import table, write


def build_kits(data: Path, size: int, folder: Path) -> dict[str, Path]:
    from pocketune.compiler.build import build_kit
    from pocketune.data import load_splits
    from pocketune.methods import TopBlocks

    photos = load_splits(data / "classification/oxford_flowers_12cls_224.zip").train
    kits = {}
    for name, bits in (("float32", 32), ("8 bits", 8)):
        kits[name] = folder / name.replace(" ", "-")
        build_kit(
            kits[name],
            network="mobilenet_v2",
            method=TopBlocks(blocks=3),
            weights=str(data / "weights/mbv2-w1.0.float32.safetensors"),
            padding="same",
            size=size,
            photos=photos,
            frozen_bits=bits,
        )
    return kits


def work(path: str, threads: int) -> None:
    """Run the frozen part for every line on standard input and answer with its milliseconds."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    from pocketune.device.graph import Graph
    from pocketune.device.kit import Kit
    from pocketune.device.manifest import FEATURES
    from pocketune.device.memory import process_memory

    kit = Kit.open(path)
    graph = Graph(kit, FEATURES, bound={}, inputs=["images"], outputs=["features"])
    size = kit.manifest.size
    images = np.random.default_rng(0).integers(0, 256, (1, size, size, 3), dtype=np.uint8)
    for _ in range(3):
        graph.run({"images": images})
    for _ in sys.stdin:
        start = time.perf_counter()
        graph.run({"images": images})
        milliseconds = (time.perf_counter() - start) * 1e3
        print(milliseconds, process_memory().peak / 1e6, flush=True)


class Worker:
    """A process that runs one kit's frozen part when it is asked to."""

    def __init__(self, kit: Path, threads: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", str(kit), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )

    def run(self) -> tuple[float, float]:
        """Milliseconds of an image, and the peak megabytes of the process so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        milliseconds, megabytes = self.process.stdout.readline().split()
        return float(milliseconds), float(megabytes)

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate("")


def measure(kits: dict[str, Path], rounds: int, threads: int) -> list[list[object]]:
    from pocketune.device.kit import Kit
    from pocketune.device.manifest import FEATURES

    workers = {name: Worker(kit, threads) for name, kit in kits.items()}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in kits}
    for _ in range(rounds):
        for name, worker in workers.items():
            runs[name].append(worker.run())
    for worker in workers.values():
        worker.close()
    pairs = zip(runs["float32"], runs["8 bits"], strict=True)
    ratio = median(exact / rounded for (exact, _), (rounded, _) in pairs)
    cost = Kit.open(kits["8 bits"]).manifest.quantisation
    assert cost is not None
    assert cost.error is not None
    assert cost.accuracy is not None
    assert cost.float_accuracy is not None
    facts = {
        "float32": ["1", "0 %", f"{cost.float_accuracy:.1%}"],
        "8 bits": [f"{ratio:.2f}", f"{cost.error:.1%}", f"{cost.accuracy:.1%}"],
    }
    return [
        [
            name,
            f"{median(time for time, _ in runs[name]):.1f}",
            *facts[name],
            f"{max(peak for _, peak in runs[name]):.0f}",
            f"{(kit / FEATURES).stat().st_size / 1e6:.2f}",
        ]
        for name, kit in kits.items()
    ]


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        kits = build_kits(options.data, options.size, Path(scratch))
        rows = measure(kits, options.rounds, options.threads)
    header = ["frozen part", "median ms an image", "times as fast", "feature error"]
    header += ["nearest-centroid accuracy", "peak process MB", "file MB"]
    title = (
        f"The frozen part of MobileNetV2 1.0 below its top three blocks, {options.size} px, "
        f"Flowers-12, {options.threads} thread(s)"
    )
    write("frozen", title, table(header, rows))


if __name__ == "__main__":
    main()
