"""Memory and time of TinyTL on the device: whole runs, each in a process of its own.

    python benchmarks/bench_tinytl.py [--steps 12]

MobileNetV2 1.0 and Adam, random weights and photos (neither changes what a step costs). The peak
is the resident high-water mark of the whole process: Python, runtime, decoding, optimizer and all.
A batch of eight is computed at once, or as eight batches of one whose gradients are added up,
which gives the same update. PyTorch's rows train eagerly by the same loop, with the method's own
memory-lean layers; those of `full` are PyTorch's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from report import table, write

CLASSES, EACH = 12, 6
CASES = [  # method, pixels, images at once, batches of a step, engine
    ("tinytl", 160, 1, 1, "onnx"),
    ("tinytl", 160, 1, 8, "onnx"),
    ("tinytl", 224, 1, 1, "onnx"),
    ("tinytl", 224, 1, 8, "onnx"),
    ("tinytl", 224, 8, 1, "onnx"),
    ("bias", 160, 1, 1, "onnx"),
    ("bias", 224, 8, 1, "onnx"),
    ("tinytl", 224, 8, 1, "torch"),
    ("bias", 224, 8, 1, "torch"),
    ("full", 224, 8, 1, "torch"),
]
RUN = """
import sys, time
from pocketune.device import train
from pocketune.device.progress import Silent

class Times(Silent):
    def __init__(self):
        self.at = []
    def step(self, report):
        self.at.append(time.perf_counter())

kit, photos, out, steps, accumulate, engine = sys.argv[1:]
engines = None
if engine == "torch":
    from pathlib import Path
    from pocketune.compiler.torch_run import TorchEngines
    engines = TorchEngines("cpu", Path(kit + ".safetensors"))
times = Times()
result = train(kit, photos, out=out, steps=int(steps), accumulate=int(accumulate),
               val_fraction=0.0, progress=times, engine=engines)
gaps = sorted(b - a for a, b in zip(times.at, times.at[1:]))
print(result.peak_memory / 1e6, 1e3 * gaps[len(gaps) // 2])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--width", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        photos = write_photos(Path(scratch) / "photos")
        rows = []
        for number, case in enumerate(CASES):
            rows.append(measure(case, Path(scratch), photos, number, options))
            print(rows[-1], flush=True)
    header = ["method", "pixels", "batch", "computed by", "peak memory", "a step"]
    write("tinytl", "Memory and time of TinyTL", table(header, rows))


def measure(
    case: tuple[str, int, int, int, str],
    scratch: Path,
    photos: Path,
    number: int,
    options: argparse.Namespace,
) -> list[str]:
    """One row of the table."""
    method, size, at_once, accumulate, engine = case
    kit = scratch / f"{method}-{size}-{at_once}"
    if not kit.exists():
        build(kit, method, size, at_once, options)
    arguments = [kit, photos, scratch / f"run{number}", options.steps, accumulate, engine]
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, milliseconds = map(float, done.stdout.split()[-2:])
    batch = f"{at_once} x {accumulate}" if accumulate > 1 else str(at_once)
    name = "kit" if engine == "onnx" else "eager PyTorch"
    return [method, str(size), batch, name, f"{peak:.0f} MB", f"{milliseconds:.0f} ms"]


def build(kit: Path, method: str, size: int, batch: int, options: argparse.Namespace) -> None:
    """A kit, and beside it the network for PyTorch."""
    import torch
    from safetensors.torch import save_file

    import pocketune

    torch.manual_seed(0)
    network = pocketune.create_network(options.network, classes=CLASSES, width=options.width)
    network = pocketune.adapt(network, pocketune.create_method(method))
    names = [f"{number:02d}" for number in range(CLASSES)]
    pocketune.compile(network, kit, batch=batch, size=size, classes=names)
    save_file(network.state_dict(), f"{kit}.safetensors")


def write_photos(folder: Path) -> Path:
    """Noise, a few photos a class."""
    rng = np.random.default_rng(0)
    for number in range(CLASSES):
        (folder / f"{number:02d}").mkdir(parents=True)
        for index in range(EACH):
            pixels = rng.integers(0, 256, (256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:02d}" / f"{index}.jpg")
    return folder


if __name__ == "__main__":
    main()
