"""Steps of 8 images in micro-batches of 8, 4, 2 and 1: time, and memory of the process.

    python benchmarks/bench_micro_batch.py [--rounds 15]

The kits differ in nothing else. Measured as in bench_step.py: one process for each kit, a step each
in turn, on random images. `chosen` marks the micro-batch that a kit has by itself.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pocketune
from bench_step import METHODS, step_worker
from pocketune.compiler import prepare
from pocketune.kit.kit import Kit
from pocketune.methods import compose_method
from report import table, write
from unchecked import skip_check

BATCH, CLASSES = 8, 10
SIZES = (8, 4, 2, 1)
HEADER = [
    *("network", "px", "trained", "micro-batch", "live tensors, MB"),
    *("median ms", "to that of 8", "peak process MB"),
]


class Case(NamedTuple):
    """A network and a method."""

    name: str
    network: dict[str, Any]
    size: int
    method: str


WIDE, NARROW = {"name": "mobilenet_v2"}, {"name": "mobilenet_v2", "width": 0.35}
CASES = [
    *(Case("MobileNetV2 1.0", WIDE, 224, method) for method in ("bias", "TinyTL-L+B", "lora")),
    Case("MobileNetV2 1.0, group norms", {**WIDE, "norm": "group"}, 160, "full"),
    Case("ResNet-18", {"name": "resnet18"}, 224, "bias"),
    Case("MobileNetV3-Small", {"name": "mobilenet_v3_small"}, 224, "bias"),
    *(Case("MobileNetV2 0.35", NARROW, 128, method) for method in ("bias", "TinyTL-L+B")),
]


def build(case: Case, images: int | None, out: Path) -> Kit:
    """A kit whose graphs compute so many images at once, or as many as it has by itself."""
    options = dict(case.network)
    network = pocketune.create_network(options.pop("name"), classes=CLASSES, **options)
    adapted = pocketune.adapt(network, compose_method(*METHODS[case.method]))
    choose = prepare.micro_batch
    if images is not None:
        prepare.micro_batch = lambda _whole: images
    try:
        return pocketune.compile(adapted, out, batch=BATCH, size=case.size)
    finally:
        prepare.micro_batch = choose


def measure(case: Case, rounds: int, scratch: Path) -> list[list[object]]:
    """A row for each micro-batch."""
    chosen = build(case, None, scratch / "chosen").manifest.micro_batch
    kits = {size: build(case, size, scratch / str(size)) for size in SIZES}
    options = argparse.Namespace(width=1.0, batch=BATCH, size=case.size)

    def worker(size: int) -> Any:
        return step_worker("kit", case.method, "kit", scratch / str(size), options, {})

    workers = {size: worker(size) for size in SIZES}
    steps = {size: list[list[float]]() for size in SIZES}
    for _ in range(rounds):
        for size, each in workers.items():
            steps[size].append(each.step())
    for each in workers.values():
        each.close()
    times = {size: median(step[0] for step in steps[size]) for size in SIZES}
    return [
        [
            *(case.name, case.size, case.method),
            f"{size}{' (chosen)' if size == chosen else ''}",
            f"{kits[size].manifest.graphs['step'].memory / 1e6:.0f}",
            f"{times[size]:.0f}",
            f"{times[size] / times[BATCH]:.2f}",
            f"{max(step[2] for step in steps[size]):.0f}",
        ]
        for size in SIZES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    skip_check()
    rows = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            rows += measure(case, options.rounds, Path(scratch))
        print(*rows[-len(SIZES) :], sep="\n", file=sys.stderr, flush=True)
    write("micro_batch", "Steps of 8 images in micro-batches", table(HEADER, rows))


if __name__ == "__main__":
    main()
