"""Time and memory of a training step: a compiled kit against eager PyTorch.

    python benchmarks/bench_step.py [--rounds 15] [--size 224] [--batch 8] [--result step]

MobileNetV2 1.0, batch 8, 224 px, the whole step: frozen part, gradients, Adam. Each configuration
runs in a process of its own that does nothing else. For time the processes take turns, one step
each after one that is not timed, and the medians are compared. The processor's time, of all threads
together, tells more where other programs use the machine too. PyTorch gets both memory formats,
its fused Adam and an allocator that keeps its memory (without which it is 1.5 times slower). For
memory each runs again in a fresh process with the default allocator, and the peak resident size
counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from fresh import KEEPING_ALLOCATOR, Worker
from report import table, write

if TYPE_CHECKING:
    from torch import nn

CLASSES = 10
CONFIGURATIONS = [
    ("mobiletl", "kit"),
    ("blocks", "kit"),
    ("blocks", "eager, NCHW"),
    ("blocks", "eager, channels-last"),
    ("full", "kit"),
    ("full", "eager, NCHW"),
    ("full", "eager, channels-last"),
]
DEEPLABV3_PATCHES = {
    **{f"decode_head.aspp.{i}.0": patch for i, patch in enumerate((3, 3, 6, 9))},
    "decode_head.bottleneck.0": 3,
}
"""A quarter of each dilation, and 3 without one; see docs/gradient-filtering.md."""
METHODS = {
    "full": ("full", {}),
    "norm": ("norm", {}),
    "bias": ("bias", {}),
    "blocks": ("blocks", {"blocks": 3}),
    "mobiletl": ("mobiletl", {"blocks": 3}),
    "TinyTL-L+B": ("tinytl", {}),
    "TinyTL-B": ("tinytl", {"lite_residual": False}),
    "last": ("last", {}),
    "lora": ("lora", {"rank": 4}),
    "repnet": ("repnet", {}),
    "blocks, filtered": ("blocks+gradfilter", {"blocks": 3, "patch": 2, "layers": "trained"}),
    "decode head": ("blocks", {"blocks": 0}),
    "1 block": ("blocks", {"blocks": 1}),
    "2 blocks": ("blocks", {"blocks": 2}),
    "5 layers, filtered": ("gradfilter", {"patch": DEEPLABV3_PATCHES}),
}
"""What a configuration calls a method: its registered name and its options."""
TIMM = "timm/"
"""Before the name of a network that timm creates."""
INTEGERS = ("mobiletl", "last")
"""Methods whose frozen part computes in 8 bits."""
BACKBONES = {"deeplabv3": "mobilenet_v2", "pspnet": "mobilenet_v2"}
"""Of networks that classify pixels."""
HEADER = ["method", "step", "median ms", "fastest ms", "median CPU ms", "peak process MB"]


def adapted(network: str, method: str, width: float) -> nn.Module:
    import pocketune
    from pocketune.methods import compose_method

    if network.startswith(TIMM):
        import timm

        created = timm.create_model(network.removeprefix(TIMM), num_classes=CLASSES)
    else:
        created = pocketune.create_network(
            network, weights=None, classes=CLASSES, width=width, backbone=BACKBONES.get(network)
        )
    return pocketune.adapt(created, compose_method(*METHODS[method]))


def build_kit(module: nn.Module, method: str, batch: int, size: int, out: Path) -> None:
    import pocketune
    from pocketune.compiler import Calibration

    images = np.random.default_rng(1).integers(0, 256, (16, size, size, 3), dtype=np.uint8)
    calibration = Calibration(images) if method in INTEGERS else None
    bits = 8 if calibration else None
    pocketune.compile(
        module, out, batch=batch, size=size, frozen_bits=bits, calibration=calibration
    )


def kit_step(path: str) -> Callable[[np.ndarray, np.ndarray], None]:
    from pocketune.device.engine.onnx import OnnxEngine
    from pocketune.device.train.optimizer import Adam
    from pocketune.kit.kit import Kit

    kit = Kit.open(path)
    engine = OnnxEngine(kit, kit.state())
    optimizer = Adam(engine.parameters)
    rng = np.random.default_rng(0)

    def step(images: np.ndarray, labels: np.ndarray) -> None:
        optimizer.step(engine.gradients(images, labels, rng).values, lr=1e-4)

    return step


def eager_step(network: nn.Module, channels_last: bool) -> Callable[[np.ndarray, np.ndarray], None]:
    import torch
    from torch.nn.functional import cross_entropy, interpolate

    from pocketune.networks import normalize

    network.train()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network.to(memory_format=layout)
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-4, fused=True)

    def step(images: np.ndarray, labels: np.ndarray) -> None:
        logits = network(normalize(network, images).contiguous(memory_format=layout))
        if labels.ndim > 1:
            logits = interpolate(logits, labels.shape[1:], mode="bilinear", align_corners=False)
        loss = cross_entropy(logits, torch.from_numpy(labels).long())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def work(
    network: str, width: float, method: str, how: str, kit: str, batch: int, size: int
) -> None:
    """Make a step for every line on standard input; answer with what `Worker.step` returns."""
    from pocketune.device.memory.process import process_memory

    if how == "kit":
        step = kit_step(kit)
    else:
        step = eager_step(adapted(network, method, width), how.endswith("channels-last"))
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, batch)
    if network in BACKBONES:
        labels = rng.integers(0, CLASSES, (batch, size, size), dtype=np.uint8)
    for _ in range(2):
        step(images, labels)
    for _ in sys.stdin:
        step(images, labels)  # fills the caches, as the step before does in training
        start, busy = time.perf_counter(), time.process_time()
        step(images, labels)
        milliseconds = (time.perf_counter() - start) * 1e3
        cpu = (time.process_time() - busy) * 1e3
        print(milliseconds, cpu, process_memory().peak / 1e6, flush=True)


def step_worker(
    network: str,
    method: str,
    how: str,
    kit: Path,
    options: argparse.Namespace,
    environment: dict[str, str],
) -> Worker:
    """Makes steps; each is its milliseconds, those of the processor, and the peak megabytes."""
    of = (network, options.width, method, how, kit, options.batch, options.size)
    return Worker(__file__, *of, environment=environment)


def measure(
    network: str, configurations: list[tuple[str, str]], options: argparse.Namespace, scratch: Path
) -> list[list[object]]:
    """A row for each configuration, a method and how its step is made."""
    kits = {method: scratch / method for method, _ in configurations}
    for method in {method for method, how in configurations if how == "kit"}:
        module = adapted(network, method, options.width)
        build_kit(module, method, options.batch, options.size, kits[method])
    return take_turns(network, configurations, options, kits)


def take_turns(
    network: str,
    configurations: list[tuple[str, str]],
    options: argparse.Namespace,
    kits: dict[str, Path],
) -> list[list[object]]:
    """The rows of `measure`, with kits that are built already."""
    times: dict[tuple[str, str], list[float]] = {c: [] for c in configurations}
    busy: dict[tuple[str, str], list[float]] = {c: [] for c in configurations}
    workers = {}
    for method, how in configurations:
        environment = {} if how == "kit" else KEEPING_ALLOCATOR
        workers[method, how] = step_worker(network, method, how, kits[method], options, environment)
    for _ in range(options.rounds):
        for configuration, worker in workers.items():
            milliseconds, cpu, _ = worker.step()
            times[configuration].append(milliseconds)
            busy[configuration].append(cpu)
    for worker in workers.values():
        worker.close()
    rows: list[list[object]] = []
    for method, how in configurations:
        worker = step_worker(network, method, how, kits[method], options, {})
        megabytes = max(worker.step()[2] for _ in range(3))
        worker.close()
        rows.append(
            [
                method,
                how,
                f"{median(times[method, how]):.0f}",
                f"{min(times[method, how]):.0f}",
                f"{median(busy[method, how]):.0f}",
                f"{megabytes:.0f}",
            ]
        )
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        network, width, method, how, kit, batch, size = sys.argv[2:]
        work(network, float(width), method, how, kit, int(batch), int(size))
        return
    options = arguments(__doc__, rounds=15)
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure("mobilenet_v2", CONFIGURATIONS, options, Path(scratch))
    title = f"A training step of MobileNetV2 1.0, batch {options.batch}, {options.size} px"
    write(options.result, title, table(HEADER, rows))


def arguments(
    description: str | None, rounds: int, *, batch: int = 8, size: int = 224
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--size", type=int, default=size)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--result", default="step", help="name of the file of bench_step.py")
    return parser.parse_args()


if __name__ == "__main__":
    main()
