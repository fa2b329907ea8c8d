"""Few-bit backward: memory, time and gradients of a step, and the accuracy that is reached.

    python benchmarks/bench_few_bit.py [--data FOLDER] [--parts steps norms accuracy] [--fresh]

`steps` builds kits of networks with random weights, with exact activations and with those of 8, 4,
2 and 1 bits. The peak is that of a training run in a fresh process. For time, the kits make a step
in turn, each in a process of its own, and each is compared with the exact kit's step of that turn;
counted is the processor's time. Kits are built without their comparison with PyTorch, which the
tests make.

`norms` has layer norms and activations in 8 bits by themselves and together: what they keep, and
the error of the gradient. It measures no time, so that a busy machine does as well.

`accuracy` transfers a small transformer from five classes of CIFAR-10 to the other five (see
`cifar_transformer`), at rates that were not searched, and is skipped if the data are missing. All
compare the gradients of all trained parameters, of one batch, with the exact ones. Results in the
.json are kept, so that a stopped run continues.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import pocketune
from bench_step import step_worker
from cifar_transformer import BATCH, accuracy, pretrained, train, transfer
from data import parse, write_photos
from fresh import kit_peak
from pocketune.accounting import account
from pocketune.methods import (
    BiasAndLast,
    FewBitBackward,
    FullFineTune,
    Method,
    NormAndLast,
    TopBlocks,
    adapt,
)
from pocketune.methods.plan import Plan
from pocketune.methods.registry import register_method
from report import keep, kept, spread, table, write
from unchecked import skip_check

BITS = (None, 8, 4, 2, 1)
CLASSES, STEP_BATCH, SIZE = 5, 8, 224
KITS: tuple[tuple[str, Method], ...] = (
    ("vit_tiny", TopBlocks(3)),
    ("vit_tiny", BiasAndLast()),
    ("convnext_atto", BiasAndLast()),
)
TRANSFERS: tuple[tuple[Method, float], ...] = (
    (BiasAndLast(), 3e-3),
    (NormAndLast(), 3e-3),
    (FullFineTune(), 1e-3),
)
"""Methods and their rates."""
PRETRAINING, EPOCHS, SEEDS = 10, 8, 2
PHOTOS, TRAINED, TESTED = 2000, 100, 1000
"""Of a class: photos to pretrain with, to transfer with, and to test on."""


def with_bits(method: Method, bits: int | None) -> Method:
    return method if bits is None else method + FewBitBackward(bits)


def gradient(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Of all trained parameters, as one vector."""
    network.train()
    network.zero_grad()
    cross_entropy(network(images), labels).backward()
    found = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    return torch.cat(found).double()


def error(
    start: nn.Module, method: Method, bits: int | None, batch: tuple[Tensor, Tensor]
) -> float:
    """Distance of the gradient from the exact one, in percent of its length."""
    exact, found = (gradient(adapt(start, with_bits(method, b)), *batch) for b in (None, bits))
    return 100 * float((found - exact).norm() / exact.norm())


def measure_steps(
    name: str, method: Method, photos: Path, scratch: Path, rounds: int
) -> dict[str, dict[str, float]]:
    """A row for each number of bits."""
    rows: dict[str, dict[str, float]] = {}
    workers = {}
    torch.manual_seed(0)
    network = pocketune.create_network(name, weights=None, classes=CLASSES)
    batch = torch.randn(STEP_BATCH, 3, SIZE, SIZE), torch.arange(STEP_BATCH) % CLASSES
    for bits in BITS:
        adapted = adapt(network, with_bits(method, bits))
        path = scratch / f"{bits}.kit"
        kit = pocketune.compile(adapted, path, batch=STEP_BATCH, size=SIZE)
        rows[str(bits)] = {
            "kept": account(adapted, batch=STEP_BATCH, size=SIZE).kept_bytes / 1e6,
            "live": kit.manifest.graphs["step"].memory / 1e6,
            "error": error(network, method, bits, batch),
            "peak": max(kit_peak(path, photos, scratch / f"{bits}-{i}", 4) for i in range(2)),
        }
        options = argparse.Namespace(width=1.0, batch=STEP_BATCH, size=SIZE)
        workers[str(bits)] = step_worker(name, "", "kit", path, options, {})
        print(name, method, bits, rows[str(bits)], flush=True)
    times: dict[str, list[float]] = {bits: [] for bits in workers}
    for _ in range(rounds):
        for bits, worker in workers.items():
            times[bits].append(worker.step()[1])
    for bits, worker in workers.items():
        worker.close()
        ratios = (own / exact for own, exact in zip(times[bits], times["None"], strict=True))
        rows[bits].update(time=median(times[bits]), ratio=median(ratios))
    return rows


def steps(rounds: int, fresh: bool) -> None:
    """The table of the steps."""
    skip_check()
    results = {} if fresh else kept("few_bit_steps")
    with tempfile.TemporaryDirectory() as scratch:
        photos = write_photos(Path(scratch) / "photos", CLASSES, 80, grain=16)
        for name, method in KITS:
            label = f"{name}, {method}"
            if label not in results:
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    results[label] = measure_steps(name, method, photos, Path(folder), rounds)
                keep("few_bit_steps", results)
    rows = [
        [
            *label.split(", ", 1),
            "exact" if bits == "None" else bits,
            *(f"{row[column]:.1f}" for column in ("kept", "live", "peak")),
            f"{row['time']:.0f}",
            f"{row['ratio']:.2f}",
            "" if bits == "None" else f"{row['error']:.2g}",
        ]
        for label, cells in results.items()
        for bits, row in cells.items()
    ]
    header = ["network", "trained", "bits", "kept in PyTorch, MB", "tensors of the kit's step, MB"]
    header += ["peak process MB", "CPU ms a step", "of the exact", "error of the gradient, %"]
    note = (
        f"Batch {STEP_BATCH}, {SIZE} px, random weights. Kept in PyTorch is what an eager step "
        "keeps for the backward pass; tensors of the kit's step are those alive at its peak; the "
        "peak is that of a training run, the higher of two. Times are the processor's, and "
        f"medians of {rounds} turns."
    )
    write("few_bit_steps", "Few-bit backward: a step", f"{note}\n\n{table(header, rows)}")


@dataclass(frozen=True)
class OnlyOf(FewBitBackward):
    """Few-bit backward of the layer norms alone, or of the activations alone.

    Attributes:
        norms: Whether it is the layer norms.
    """

    norms: bool = True

    def finalize(self, plan: Plan, network: nn.Module) -> Plan:
        """Leave the others as they are."""
        found = super().finalize(plan, network)
        others = {
            name
            for name in found.replaced.keys() - plan.replaced.keys()
            if isinstance(network.get_submodule(name), nn.LayerNorm) != self.norms
        }
        made = {name: make for name, make in found.replaced.items() if name not in others}
        return replace(found, replaced=made)


NORMS: dict[str, Callable[[Method], Method]] = {
    "nothing": lambda method: method,
    "activations": lambda method: method + OnlyOf(norms=False),
    "layer norms": lambda method: method + OnlyOf(norms=True),
    "both": lambda method: method + FewBitBackward(),
}
"""What is in 8 bits."""


def measure_norms(name: str) -> dict[str, dict[str, float]]:
    """A row for each of `NORMS`, with the biases trained."""
    torch.manual_seed(0)
    network = pocketune.create_network(name, weights=None, classes=CLASSES)
    batch = torch.randn(STEP_BATCH, 3, SIZE, SIZE), torch.arange(STEP_BATCH) % CLASSES
    exact = gradient(adapt(network, BiasAndLast()), *batch)
    rows = {}
    for what, within in NORMS.items():
        adapted = adapt(network, within(BiasAndLast()))
        found = gradient(adapted, *batch)
        with tempfile.TemporaryDirectory() as folder:
            kit = pocketune.compile(adapted, Path(folder, "kit"), batch=STEP_BATCH, size=SIZE)
        rows[what] = {
            "kept": account(adapted, batch=STEP_BATCH, size=SIZE).kept_bytes / 1e6,
            "live": kit.manifest.graphs["step"].memory / 1e6,
            "error": 100 * float((found - exact).norm() / exact.norm()),
        }
        print(name, what, rows[what], flush=True)
    return rows


def norms(fresh: bool) -> None:
    """The table of the norms and of the activations."""
    skip_check()
    register_method("fewbit_only")(OnlyOf)  # a kit records the name
    results = {} if fresh else kept("few_bit_norms")
    for name in ("vit_tiny", "convnext_atto"):
        if name not in results:
            results[name] = measure_norms(name)
            keep("few_bit_norms", results)
    rows = [
        [name, what, f"{row['kept']:.1f}", f"{row['live']:.1f}", f"{row['error']:.2g}"]
        for name, cells in results.items()
        for what, row in cells.items()
    ]
    header = ["network", "in 8 bits", "kept in PyTorch, MB", "tensors of the kit's step, MB"]
    header += ["error of the gradient, %"]
    note = (
        f"Biases are trained. Batch {STEP_BATCH}, {SIZE} px, random weights. Kept in PyTorch is "
        "what an eager step keeps for the backward pass; tensors of the kit's step are those alive "
        "at its peak."
    )
    title = "Few-bit backward: layer norms by themselves"
    write("few_bit_norms", title, f"{note}\n\n{table(header, rows)}")


def missing(results: dict[str, dict[str, Any]]) -> list[tuple[int, Method, float, int | None]]:
    """Seed, method, rate and bits of the transfers that are not in the results."""

    def done(method: Method, bits: int | None) -> int:
        return len(results.get(str(method), {}).get(str(bits), {}).get("scores", []))

    return [
        (seed, method, rate, bits)
        for seed in range(SEEDS)
        for method, rate in TRANSFERS
        for bits in BITS
        if done(method, bits) <= seed
    ]


def measure_transfers(data: Path, results: dict[str, dict[str, Any]]) -> None:
    """The accuracies that are missing, and the errors of gradients before the transfer."""
    network, reached = pretrained(data, PHOTOS, PRETRAINING)
    results["pretrained"] = {"top-1": reached}
    photos = transfer(data, TRAINED, TESTED)
    batch = photos[0][0][::16], photos[0][1][::16]
    for seed, method, rate, bits in missing(results):
        cell = results.setdefault(str(method), {}).setdefault(str(bits), {"scores": []})
        torch.manual_seed(seed)
        adapted = adapt(network, with_bits(method, bits))
        train(adapted, photos[0], EPOCHS, rate)
        cell["scores"].append(accuracy(adapted, photos[1]))
        if not seed:
            cell["error"] = error(network, method, bits, batch)
        print(method, bits, cell, flush=True)
        keep("few_bit_accuracy", results)


def transfers(data: Path, fresh: bool) -> None:
    """The table of the accuracies."""
    results: dict[str, dict[str, Any]] = {} if fresh else kept("few_bit_accuracy")
    if missing(results):
        measure_transfers(data, results)
    reached = results["pretrained"]["top-1"]
    rows = []
    for method, _ in TRANSFERS:
        cells = results[str(method)]
        exact = cells["None"]["scores"]
        for bits_name, cell in cells.items():
            pairs = [own - other for own, other in zip(cell["scores"], exact, strict=True)]
            compared = ["", ""] if bits_name == "None" else [spread(pairs), f"{cell['error']:.2g}"]
            shown = "exact" if bits_name == "None" else bits_name
            rows.append([method, shown, spread(cell["scores"]), *compared])
    header = ["trained", "bits", "top-1, %", "difference", "error of the gradient, %"]
    note = (
        f"A transformer that was pretrained on {PHOTOS} photos of each of five classes of CIFAR-10 "
        f"for {PRETRAINING} epochs ({reached:.1f} % on their test photos), transferred to "
        f"{TRAINED} photos of each of the other five: {EPOCHS} epochs, batch {BATCH}, {SEEDS} "
        f"seeds, {TESTED} test photos of each class. The difference is that from the exact run of "
        "the same seed."
    )
    write("few_bit_accuracy", "Few-bit backward: accuracy", f"{note}\n\n{table(header, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=("steps", "norms", "accuracy"))
    parser.add_argument("--rounds", type=int, default=5, help="turns of the times")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    options = parse(parser)
    parts = options.parts or ("steps", "norms", "accuracy")
    if "steps" in parts:
        steps(options.rounds, options.fresh)
    if "norms" in parts:
        norms(options.fresh)
    if "accuracy" in parts:
        transfers(options.data, options.fresh)


if __name__ == "__main__":
    main()
