"""Rep-Net on a pruned network: peak memory and time of whole runs, each in a fresh process.

    python benchmarks/bench_repnet_memory.py [--steps 12] [--size 224] [--batch 8]

MobileNetV2 1.0 with random weights and Adam, on generated photos. Pruned are the hidden channels of
the first four blocks, by the paper's ratios (30, 78, 46 and 46 %). The peak is the resident
high-water mark of the process: Python, runtime, decoding, optimizer and all. PyTorch's rows train
eagerly by the same loop; those of `full` have PyTorch's own layers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_tinytl import CLASSES, PHOTOS
from data import class_names, write_photos
from report import table, write

CASES = [  # method, pruned, engine
    ("repnet", False, "onnx"),
    ("repnet", True, "onnx"),
    ("repnet", False, "torch"),
    ("repnet", True, "torch"),
    ("full", False, "torch"),
]
RUN = """
import sys, time
from pathlib import Path
from pocketune.device.train import train
from pocketune.device.train.progress import Silent

class Times(Silent):
    def __init__(self):
        self.at = []
    def step(self, report):
        self.at.append(time.perf_counter())

kit, photos, out, steps, engine = sys.argv[1:]
engines = None
if engine == "torch":
    from pocketune.eager.run import TorchEngines
    engines = TorchEngines("cpu", Path(kit + ".safetensors"))
times = Times()
result = train(kit, photos, out=out, steps=int(steps), val_fraction=0.0, progress=times,
               engine=engines)
gaps = sorted(b - a for a, b in zip(times.at, times.at[1:]))
print(result.peak_memory / 1e6, 1e3 * gaps[len(gaps) // 2])
"""


def build(kit: Path, method: str, *, pruned: bool, options: argparse.Namespace) -> None:
    """A kit, and beside it the network for PyTorch."""
    import torch
    from safetensors.torch import save_file

    import pocketune
    from pocketune.papers.repnet import PRUNED

    torch.manual_seed(0)
    network = pocketune.create_network("mobilenet_v2", classes=CLASSES, width=options.width)
    if pruned:
        network = pocketune.prune(network, PRUNED, importance="weight")
    network = pocketune.adapt(network, pocketune.create_method(method))
    task = pocketune.Classification(tuple(class_names(CLASSES)))
    pocketune.compile(network, kit, batch=options.batch, size=options.size, task=task)
    save_file(network.state_dict(), f"{kit}.safetensors")


def measure(kit: Path, photos: Path, engine: str, out: Path, steps: int) -> list[str]:
    """Peak and time of a step of a run in a process of its own."""
    arguments = [kit, photos, out, steps, engine]
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, milliseconds = map(float, done.stdout.split()[-2:])
    return [f"{peak:.0f} MB", f"{milliseconds:.0f} ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=float, default=1.0)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        photos = write_photos(Path(scratch) / "photos", CLASSES, PHOTOS)
        for number, (method, pruned, engine) in enumerate(CASES):
            kit = Path(scratch) / f"{method}-{pruned}"
            if not kit.exists():
                build(kit, method, pruned=pruned, options=options)
            name = "kit" if engine == "onnx" else "eager PyTorch"
            run = Path(scratch) / f"run{number}"
            cells = measure(kit, photos, engine, run, options.steps)
            rows.append([method, "pruned" if pruned else "whole", name, *cells])
            print(*rows[-1], flush=True)
    header = ["method", "network", "computed by", "peak memory", "a step"]
    title = f"Rep-Net on MobileNetV2, whole and pruned: {options.size} px, batch {options.batch}"
    write("repnet_memory", title, table(header, rows))


if __name__ == "__main__":
    main()
