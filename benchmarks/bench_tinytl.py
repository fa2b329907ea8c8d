"""Memory and time of TinyTL on the device.

    python benchmarks/bench_tinytl.py [--steps 12] [--rounds 15]

MobileNetV2 1.0 and Adam, random weights and photos (neither changes what a step costs). Memory is
that of whole runs, each in a fresh process: the resident high-water mark of Python, runtime,
decoding, optimizer and all. A batch of eight is computed at once, or as eight batches of one whose
gradients are added up ("1 x 8"), which gives the same update. PyTorch's rows train eagerly on the
same photos by PyTorch's own layers and Adam; for biases alone, norms are on frozen statistics.

Times are those of bench_step.py: a step of each configuration in turn; eager rows have TinyTL's
memory-lean layers there, and `full` PyTorch's own.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench_step import CLASSES, HEADER, adapted, measure
from data import class_names, write_photos
from fresh import kit_peak, peak
from report import table, write

PHOTOS = 80
LB, B, FULL, BIAS = "TinyTL-L+B", "TinyTL-B", "full", "bias"
RUNS = [  # what is trained, how, pixels, images at once, batches of a step
    *((method, "kit", 160, 1, 1) for method in (LB, B)),
    *((method, "kit", 160, 1, 8) for method in (LB, B)),
    *((method, "kit", 224, 1, 8) for method in (LB, B)),
    *((method, "kit", 224, 8, 1) for method in (LB, B)),
    *((method, "eager PyTorch", 160, 1, 1) for method in (FULL, BIAS)),
    *((method, "eager PyTorch", 224, 8, 1) for method in (FULL, BIAS)),
]
STEPS = [
    *(
        (method, how)
        for method in (LB, B)
        for how in ("kit", "eager, NCHW", "eager, channels-last")
    ),
    *((FULL, how) for how in ("eager, NCHW", "eager, channels-last")),
]


def main() -> None:
    if sys.argv[1:2] == ["--eager"]:
        network, width, trained, photos, steps, size, batch = sys.argv[2:]
        eager_run(network, float(width), trained, photos, int(steps), int(size), int(batch))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=12, help="of each run")
    parser.add_argument("--rounds", type=int, default=15, help="steps that are timed")
    parser.add_argument("--network", default="mobilenet_v2")
    parser.add_argument("--width", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        memory = measure_memory(options, Path(scratch))
        options.batch, options.size = 8, 224
        times = measure(options.network, STEPS, options, Path(scratch))
    columns = ["trained", "by", "pixels", "batch", "peak process MB"]
    text = f"{table(columns, memory)}\n\n{table(HEADER, times)}"
    write("tinytl", f"Memory and time of TinyTL, {options.network} x {options.width:g}", text)


def measure_memory(options: argparse.Namespace, scratch: Path) -> list[list[str]]:
    photos = write_photos(scratch / "photos", CLASSES, PHOTOS)
    rows = []
    for number, (method, how, size, at_once, accumulate) in enumerate(RUNS):
        if how == "kit":
            kit = scratch / f"{method}-{size}-{at_once}"
            if not kit.exists():
                build(kit, method, size, at_once, options)
            run = scratch / f"run{number}"
            megabytes = kit_peak(kit, photos, run, options.steps, accumulate)
        else:
            command = [__file__, "--eager", options.network, options.width, method]
            command += [photos, options.steps, size, at_once]
            megabytes = peak([str(argument) for argument in command])
        batch = f"{at_once} x {accumulate}" if accumulate > 1 else str(at_once)
        rows.append([method, how, str(size), batch, f"{megabytes:.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def build(kit: Path, method: str, size: int, batch: int, options: argparse.Namespace) -> None:
    import pocketune

    network = adapted(options.network, method, options.width)
    task = pocketune.Classification(tuple(class_names(CLASSES)))
    pocketune.compile(network, kit, batch=batch, size=size, task=task)


def eager_run(
    name: str, width: float, trained: str, photos: str, steps: int, size: int, batch: int
) -> None:
    """Train as PyTorch's users do, and print the peak megabytes of this process."""
    import torch

    import pocketune
    from pocketune.data import Loader, load_splits
    from pocketune.device.memory.process import process_memory
    from pocketune.networks import anatomy, normalize

    network = pocketune.create_network(name, classes=CLASSES, width=width).train()
    if trained == BIAS:
        output = anatomy(network).classifier
        for path, parameter in network.named_parameters():
            parameter.requires_grad_(path.endswith("bias") or path.startswith(output))
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.eval()
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=1e-4)
    loader = Loader(load_splits(photos, val_fraction=0.0).train, size=size, batch=batch, train=True)
    done = 0
    while done < steps:
        for step in loader.epoch(done):
            logits = network(normalize(network, step.images))
            loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(step.labels))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
    print(process_memory().peak / 1e6)


if __name__ == "__main__":
    main()
