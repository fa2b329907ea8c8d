"""Adam with its sums in 8 bits beside Adam: accuracy over four seeds, time and size of its state.

    python benchmarks/bench_adam8.py [--data FOLDER] [--photos flowers] [--methods mobiletl ...]

MobileNetV2 0.35 at 128 px, batch 8, default settings. Both train from the same start on the same
crops. Results in the .json are kept, so that a stopped run continues. The accuracy is skipped if
the data are missing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from bench_accuracy import METHODS
from data import parse, unpack
from pocketune.device.train import TrainSettings
from pocketune.device.train.optimizer import create_optimizer
from pocketune.methods import compose_method
from pretrained import NETWORKS, weights_file
from report import keep, kept, spread, table, write
from trials import Trials, Views

NETWORK = "mbv2-w0.35"
SEEDS = 4
OPTIMIZERS = ("adam", "adam8")
TRAINED = ["last", "blocks (top 3)", "mobiletl (top 3)"]
VALUES, STEPS = 1_540_000, 30
"""As many parameters as MobileTL trains of MobileNetV2 1.0."""


def fill(cells: dict[str, list[float]], trials: Trials) -> Iterator[None]:
    """Measure the accuracies that are missing, one at a time."""
    for seed, optimizer in product(range(SEEDS), OPTIMIZERS):
        found = cells.setdefault(optimizer, [])
        if len(found) == seed:
            found.append(trials.accuracy(TrainSettings(optimizer=optimizer, seed=seed)))
            yield


def accuracy(results: dict[str, dict[str, list[float]]]) -> str:
    """Top-1 of each method and optimizer, and the difference seed by seed."""
    rows = []
    for name, cells in results.items():
        plain, coded = (cells[optimizer] for optimizer in OPTIMIZERS)
        pairs = [own - other for own, other in zip(coded, plain, strict=True)]
        rows.append([*name.split(": "), spread(plain), spread(coded), spread(pairs)])
    return table(["photos", "trained", *OPTIMIZERS, "difference"], rows)


def costs() -> str:
    """Processor time of a step and bytes of the state, the optimizers taking turns."""
    rng = np.random.default_rng(0)
    gradients = {"w": rng.standard_normal((VALUES // 1000, 1000)).astype(np.float32)}
    made = {
        name: create_optimizer(name, {"w": np.zeros_like(gradients["w"])}) for name in OPTIMIZERS
    }
    taken: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(STEPS):
        for name, optimizer in made.items():
            began = time.process_time()
            optimizer.step(gradients, lr=1e-3)
            taken[name].append((time.process_time() - began) * 1e3)
    rows = []
    for name, optimizer in made.items():
        size = sum(array.nbytes for array in optimizer.state().values())
        rows.append([name, f"{size / 1e6:.1f}", f"{median(taken[name]):.1f}"])
    return table(["optimizer", "state, MB", "CPU ms a step"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", nargs="+", default=["flowers"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=TRAINED)
    options = parse(parser)
    results = kept("adam8")
    with tempfile.TemporaryDirectory() as scratch:
        for photos in options.photos:
            folder = unpack(options.data, photos, Path(scratch) / photos)
            for method in options.methods:
                cells = results.setdefault(f"{photos}: {method}", {})
                if cells and all(len(found) == SEEDS for found in cells.values()):
                    continue
                kit = Path(scratch) / f"{photos} {method}.kit"
                weights = weights_file(options.data, NETWORK)
                NETWORKS[NETWORK].kit(kit, compose_method(*METHODS[method]), weights, folder)
                trials = Trials(kit, Views(folder, None))
                for _ in fill(cells, trials):
                    print(photos, method, cells, flush=True)
                    keep("adam8", results)
    write(
        "adam8",
        "Adam with its sums in 8 bits",
        f"Top-1 in percent on the test photos after the last step, over {SEEDS} seeds; MobileNetV2 "
        "0.35 at 128 px, batch 8, default settings.\n\n"
        f"{accuracy(results)}\n\nA step on {VALUES:,} parameters:\n\n{costs()}",
    )


if __name__ == "__main__":
    main()
