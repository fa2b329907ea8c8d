"""What filtered gradients gain in a whole training step, eager and compiled.

    python benchmarks/bench_filter_step.py [--rounds 15] [--threads 2] [--batch 8] [--size 224]

The last 2 or 4 convolutions or all of them, and the classifier, trained with exact gradients and
with patches of 2 and 4 pixels. Eager PyTorch, channels last: forward and backward pass. Kits: the
same, the frozen part included. Random images; variants in turns in one process, medians; the
optimizer is left out, and the allocator keeps freed memory. Takes five to fifteen minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import pocketune
from fresh import keep_memory
from pocketune.device.engine.onnx import OnnxEngine
from pocketune.filtering import FilteredConv2d
from pocketune.layers.conv import Conv2d
from pocketune.methods import GradientFilter
from pocketune.networks import about, anatomy, normalize
from pocketune.surgery import swap
from report import table, write

NETWORKS = {"mobilenet_v2": "MobileNetV2", "resnet18": "ResNet-18"}
CLASSES = 10
PATCHES = (None, 2, 4)  # None: exact

Step = Callable[[np.ndarray, np.ndarray], object]


def remove_filters(network: nn.Module) -> None:
    """Give all convolutions PyTorch's own gradients, in place."""
    filtered = [name for name, m in network.named_modules() if isinstance(m, FilteredConv2d)]
    swap(network, dict.fromkeys(filtered, Conv2d.from_convolution))


def adapted(name: str, layers: int, patch: int | None) -> nn.Module:
    """Trained in the same parameters, exactly where `patch` is None."""
    torch.manual_seed(0)
    network = pocketune.create_network(name, classes=CLASSES)
    network = pocketune.adapt(network, GradientFilter(patch or 2, layers))
    if patch is None:
        remove_filters(network)
    return network


def eager_step(network: nn.Module) -> Step:
    network = network.train().to(memory_format=torch.channels_last)
    trained = [p for p in network.parameters() if p.requires_grad]

    def step(images: np.ndarray, labels: np.ndarray) -> object:
        pixels = normalize(network, images).contiguous(memory_format=torch.channels_last)
        logits = network(pixels)
        return torch.autograd.grad(cross_entropy(logits, torch.from_numpy(labels)), trained)

    return step


def kit_step(network: nn.Module, folder: Path, batch: int, size: int) -> Step:
    kit = pocketune.compile(network, folder, batch=batch, size=size)
    engine = OnnxEngine(kit, kit.state())
    return lambda images, labels: engine.gradients(images, labels, np.random.default_rng(0))


def measure(networks: list[nn.Module], how: str, options: argparse.Namespace) -> list[float]:
    """Milliseconds of a step of each network, in eager PyTorch or from a kit."""
    if how == "eager":
        return race(list(map(eager_step, networks)), options)
    with tempfile.TemporaryDirectory() as scratch:
        folders = (Path(scratch) / str(number) for number in range(len(networks)))
        made = zip(networks, folders, strict=True)
        steps = [kit_step(each, folder, options.batch, options.size) for each, folder in made]
        return race(steps, options)


def race(steps: list[Step], options: argparse.Namespace) -> list[float]:
    """Milliseconds of each."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (options.batch, options.size, options.size, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, options.batch)
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(options.rounds):
        for step, measured in zip(steps, times, strict=True):
            start = time.perf_counter()
            step(images, labels)
            measured.append(1000 * (time.perf_counter() - start))
    return [median(measured) for measured in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    rows = []
    for name, title in NETWORKS.items():
        body = anatomy(pocketune.create_network(name, classes=CLASSES))
        every = sum(layer.role != "downsample" for layer in body.layers)
        for layers in (2, 4, every):
            networks = [adapted(name, layers, patch) for patch in PATCHES]
            chains = about(networks[1]).filter_chains
            count = "all" if layers == every else str(layers)
            linked = ", ".join(str(len(chain)) for chain in chains)
            for how in ("eager", "kit"):
                took = measure(networks, how, options)
                gains = [f"{took[0] / ms:.2f}" for ms in took[1:]]
                rows.append([title, count, linked, how, *(f"{ms:.0f}" for ms in took), *gains])
                print(*rows[-1], flush=True)
    header = ["network", "last layers", "chains of", "step", "exact, ms", "patch 2, ms"]
    header += ["patch 4, ms", "patch 2, times as fast", "patch 4, times as fast"]
    note = f"{options.threads} threads, batch {options.batch}, {options.size} px."
    title = "A training step with filtered gradients"
    write("filter_step", title, f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
