"""Accuracy over memory of activation pruning, beside TinyTL: figure 4 of TinyTL's paper, small.

    python benchmarks/bench_activation_pruning.py [--data FOLDER] [--seeds 2] [--epochs 3]

MobileNetV2 0.35 with published weights is fine-tuned on 12 kinds of flowers, in eager PyTorch with
the default rates, Adam and batches of 8, from a classifier that is computed from the photos:
everything, with and without `ActivationPruning` of several ratios, and TinyTL-L+B. Memory is what
PyTorch keeps for the backward pass of a step, and the peak of the tensors of a step with Adam, as
`account` predicts both.

Kits of some of them are trained for a few steps, each in a process of its own, whose resident
high-water mark is what a device would need.

Finished runs are kept in the .json, so that a stopped script continues; `--fresh` discards them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import pocketune
from data import parse, unpack
from fresh import kit_peak
from pocketune.accounting import account
from pocketune.arrays import FloatArray
from pocketune.compiler import compile
from pocketune.compiler.manifest import parameter_specs
from pocketune.data import ImageDataset, Loader, Purpose, load_splits, random_stream
from pocketune.device.head import fit_head
from pocketune.device.train import TrainSettings
from pocketune.device.train.optimizer import create_optimizer
from pocketune.device.train.schedule import CosineSchedule
from pocketune.eager.engine import TorchEngine
from pocketune.methods import ActivationPruning, FullFineTune, Method, Sum, TinyTL, adapt
from pocketune.networks.anatomy.output import find_output, only_layer
from pocketune.tasks import Classification
from pocketune.weights import restore_batch_norm, sample_batches
from pretrained import BATCH, NETWORKS, weights_file
from report import keep, kept, spread, table, write

NAME, NETWORK = "activation_pruning", "mbv2-w0.35"
CLASSES = 12
FULL = FullFineTune()
METHODS: dict[str, Method] = {
    "full": FULL,
    "L+B": TinyTL(),
    **{f"full, drop {r:g}": FULL + ActivationPruning(r) for r in (0.3, 0.5, 0.7, 0.9)},
    **{
        f"full, drop {r:g} backward": FULL + ActivationPruning(r, forward=False) for r in (0.5, 0.9)
    },
}
Results = dict[str, dict[str, Any]]
EXACT = "full, drop 0"
"""Only the activations keep less: the same gradients, so that it is not trained."""
COLUMNS = (
    "trained",
    "kept MB",
    "step MB",
    "top-1 (seeds)",
    "kit: tensors MB",
    "nodes",
    "process MB",
)
PARTS = ("kits", "accuracy")
KITS = ("full", "full, drop 0.5")


class Photos:
    """Flowers at one size: batches of training photos by seed and epoch, and test photos."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.train = load_splits(folder / "train", val_fraction=0.0).train
        self.size = size
        self.center = self._all(self.train)
        self.test = self._all(load_splits(folder / "test", val_fraction=0.0).train)
        self.task = Classification(tuple(self.train.labeled.classes))

    def batches(self, seed: int, epochs: int) -> Iterator[tuple[Any, Any]]:
        """Pixels and labels."""
        loader = Loader(self.train, size=self.size, batch=BATCH, train=True, seed=seed)
        for epoch in range(epochs):
            for batch in loader.epoch(epoch):
                yield batch.images, batch.labels

    def _all(self, photos: ImageDataset) -> tuple[Any, Any]:
        batches = list(Loader(photos, size=self.size, batch=BATCH, train=False).epoch(0))
        return tuple(
            np.concatenate([getattr(batch, part) for batch in batches])
            for part in ("images", "labels")
        )  # type: ignore[return-value]


def created(data: Path, photos: ImageDataset, size: int) -> nn.Module:
    """The network; the norms, which are folded in the weights, are measured on the photos."""
    made = NETWORKS[NETWORK]
    weights = weights_file(data, NETWORK)
    network = pocketune.create_network(made.network, **made.options(weights), classes=CLASSES)
    return restore_batch_norm(network, sample_batches(network, photos, size=size))


def trained(network: nn.Module, method: Method, photos: Photos, seed: int, epochs: int) -> float:
    """Top-1 in percent on the test photos after the last step."""
    adapted = adapt(network, method)
    layer = only_layer(adapted, find_output(adapted, photos.size))
    head = (f"{layer}.weight", f"{layer}.bias")
    task = replace(photos.task, head=head)
    engine = TorchEngine(adapted, batch=BATCH, size=photos.size, task=task)
    _fit(engine, photos, head)
    steps = epochs * (len(photos.train) // BATCH)
    settings = TrainSettings()
    rates = settings.rates(list(parameter_specs(adapted, head)))
    optimizer = create_optimizer("adam", engine.parameters, rates=rates)
    schedule = CosineSchedule(settings.peak_rates().main, steps)
    for step, (images, labels) in enumerate(photos.batches(seed, epochs)):
        rng = random_stream(seed, Purpose.DROPOUT, step)
        optimizer.step(engine.gradients(images, labels, rng).values, lr=schedule(step))
    images, labels = photos.test
    return 100 * float((engine.predict(images).argmax(1) == labels).mean())


def _fit(engine: TorchEngine, photos: Photos, head: tuple[str, str]) -> None:
    """A classifier from the photos, as every run starts."""
    images, labels = photos.center
    embeddings = engine.embed(images)
    found = fit_head(lambda: iter([(embeddings, labels)]), photos.task)
    assert found is not None, "a classification has a closed form"
    state: dict[str, FloatArray] = engine.state()
    state[head[0]] = found.weight.reshape(state[head[0]].shape)
    engine.load({**state, head[1]: found.bias})


def measure_accuracy(
    network: nn.Module, photos: Photos, options: argparse.Namespace, results: Results
) -> None:
    rounds = [(seed, label) for seed in range(options.seeds) for label in options.methods]
    started, done = time.monotonic(), 0
    for number, (seed, label) in enumerate(rounds):
        scores = results.setdefault(label, {}).setdefault("top1", {})
        if str(seed) in scores:
            continue
        scores[str(seed)] = trained(network, METHODS[label], photos, seed, options.epochs)
        keep(NAME, results)
        done += 1
        left = (time.monotonic() - started) / done * (len(rounds) - number - 1) / 60
        print(f"{label}, seed {seed}: {scores[str(seed)]:.1f} %, {left:.0f} min left", flush=True)


def count_memory(network: nn.Module, options: argparse.Namespace, results: Results) -> None:
    for label, method in {**METHODS, EXACT: FULL + ActivationPruning(0.0)}.items():
        report = account(adapt(network, method), batch=BATCH, size=options.size)
        counted = {"kept": report.kept_bytes, "total": report.total_bytes}
        results.setdefault(label, {}).update({**_pruning(method), **counted})
    keep(NAME, results)


def _pruning(method: Method) -> dict[str, Any]:
    terms = method.methods if isinstance(method, Sum) else ()
    found = [term for term in terms if isinstance(term, ActivationPruning)]
    return {"ratio": found[0].ratio, "forward": found[0].forward} if found else {}


def measure_kits(photos: Photos, options: argparse.Namespace, results: Results) -> None:
    """Peak of a process that trains a kit for a few steps; random weights take as much."""
    made = NETWORKS[NETWORK]
    network = pocketune.create_network(made.network, width=made.width, classes=CLASSES)
    with tempfile.TemporaryDirectory() as scratch:
        for label in (label for label in KITS if "peak" not in results[label]):
            kit = Path(scratch) / label.replace(" ", "")
            adapted = adapt(network, METHODS[label])
            written = compile(adapted, kit, batch=BATCH, size=options.size, task=photos.task)
            step = written.manifest.graphs["step"]
            peak = kit_peak(kit, photos.folder / "train", Path(scratch) / f"run{label}", 6)
            results[label].update(peak=peak, tensors=step.memory, nodes=step.nodes)
            keep(NAME, results)
            print(f"kit of {label}: {peak:.0f} MB", flush=True)


def publish(options: argparse.Namespace, results: Results) -> None:
    rows = []
    for label in ("full", EXACT, *list(METHODS)[2:], "L+B"):
        found = results[label]
        scores = list(found.get("top1", {}).values())
        row = [label, f"{found['kept'] / 1e6:.1f}", f"{found['total'] / 1e6:.1f}"]
        row.append(f"{spread(scores)} ({len(scores)})" if scores else "")
        if "peak" in found:
            row += [f"{found['tensors'] / 1e6:.1f}", f"{found['nodes']:,}", f"{found['peak']:.0f}"]
        rows.append(row + [""] * (len(COLUMNS) - len(row)))
    made = NETWORKS[NETWORK]
    note = (
        f"{NETWORK} ({made.network}), {options.size} px, batch {BATCH}, Adam, default rates, "
        f"cosine to 0, {options.epochs} epochs on 479 photos of 12 flowers; top-1 in percent on "
        "240 test photos after the last step, mean ± standard deviation of so many seeds (order, "
        "crops). Kept: what eager PyTorch keeps for the backward pass of a step; step: the peak "
        "of a step's tensors, Adam's moments included; both as `account` predicts them. Pruning "
        "by `ActivationPruning(ratio)`; `backward` is `forward=False`. `drop 0` keeps one bit for "
        "each ReLU6 and has the gradients of `full`. Kits: the largest sum of live tensors, as "
        "the compiler plans it, nodes of the step, and the resident peak of a process that trains "
        "six steps."
    )
    write(NAME, "Activation pruning beside TinyTL", f"{note}\n\n{table(COLUMNS, rows)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--fresh", action="store_true", help="discard finished runs")
    options = parse(parser)
    results: Results = {} if options.fresh else kept(NAME)
    with tempfile.TemporaryDirectory() as scratch:
        photos = Photos(unpack(options.data, "flowers", Path(scratch)), options.size)
        network = created(options.data, photos.train, options.size)
        count_memory(network, options, results)
        if "kits" in options.parts:
            measure_kits(photos, options, results)
        if "accuracy" in options.parts:
            measure_accuracy(network, photos, options, results)
    publish(options, results)


if __name__ == "__main__":
    main()
