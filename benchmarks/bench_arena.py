"""The arena of a step, measured by its pages, against the one that the compiler simulates.

    python benchmarks/bench_arena.py [--scratch DIR]

The kits are those of the part `held-out` of bench_memory.py, which stay in the scratch folder. The
step of each runs twice in a fresh process, by the engine's own session.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from arena import resident_arena
from memory_runs import CLASSES, runs
from pocketune.kit.manifest import PACKED_WEIGHTS
from report import table, write

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(uint8)": np.uint8}


def work(kit: Path) -> None:
    """Print the bytes of the arena after two steps of a kit."""
    from pocketune.device.engine.session import _open
    from pocketune.device.memory.graphs import arena_region
    from pocketune.kit.kit import Kit

    opened = Kit.open(kit, verify=False)
    session = _open(opened, "step.onnx", CLASSES)
    rng, feeds = np.random.default_rng(0), {}
    for each in session.get_inputs():
        shape = [size if isinstance(size, int) else CLASSES for size in each.shape]
        feeds[each.name] = rng.random(shape).astype(TYPES[each.type])
    for _ in range(2):
        session.run(None, feeds)
    print(resident_arena(arena_region(opened.manifest)))


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, help="folder for kits, which are kept")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        build = [sys.executable, "bench_memory.py", "--build", "held-out", str(scratch)]
        subprocess.run(build, check=True, cwd=Path(__file__).parent)
        kits = [scratch / row.name for row in dict.fromkeys(run.row for run in runs("held-out"))]
        for kit in kits:
            command = [sys.executable, __file__, "--work", str(kit)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ)
            spec = json.loads((kit / "manifest.json").read_text())["graphs"]["step"]
            measured = int(done.stdout)
            if spec["arena"] > 1e6:
                packed = spec["weights"] if spec["weights"] <= PACKED_WEIGHTS else 0
                simulated = (spec["arena"] + packed) / 1e6
                rows.append((kit.name, spec["memory"] / 1e6, simulated, measured / 1e6))
    ratios = sorted(measured / simulated for _, _, simulated, measured in rows)
    lines = []
    for name, *sizes in sorted(rows, key=lambda row: row[3] / row[2]):
        named, ratio = name.removesuffix("_None").removesuffix("_32"), sizes[2] / sizes[1]
        lines.append([named, *(f"{each:.1f}" for each in sizes), f"{ratio:.2f}"])
    note = (
        f"Steps of {len(rows)} of {len(kits)} kits; the others have arenas below 1 MB. "
        "Simulated are the tensors, their gaps and the copies of constants that a step may pack. "
        f"Measured arenas are {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f} times the simulated ones, in the median {np.median(ratios):.2f}."
    )
    header = ["kit", "live MB", "simulated MB", "measured MB", "measured / simulated"]
    write("arena", "The arena of a step", f"{note}\n\n{table(header, lines)}")


if __name__ == "__main__":
    main()
