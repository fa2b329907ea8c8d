"""Accuracy of the methods on real photos, with one short recipe and rates chosen for each set.

    python benchmarks/bench_accuracy.py [--data FOLDER] [--network mbv2-w0.35] [--seeds 4]
        [--photos flowers ...] [--methods last mobiletl ...]

A network pretrained on ImageNet is fine-tuned as `pocketune train` does it: a kit is built from
the published weights, with 8-bit frozen layers where the method asks for them, the classifier is
computed from the photos, and everything is trained with Adam and one cosine to zero. Each method
has, for each set, the learning rate from 1e-4 to 1e-2 and then the rate of the classifier that do
best on a fifth of the set's own training photos, held out for this alone: from the middle, in the
direction that improves. The accuracy is that of the last step, on the test photos; the memory is
the peak of a fresh process that trains the kit on the flowers. Results in the .json are kept, so
that a stopped run continues; `--fresh` discards them. The script is skipped if the data are
missing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pocketune
from data import parse, unpack
from fresh import kit_peak
from pocketune.device.train.progress import Silent
from pocketune.methods import Method, TinyTL
from pretrained import BATCH, NETWORKS, weights_file
from report import keep, kept, spread, table, write

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
METHODS: dict[str, Method] = {
    "last": pocketune.LastLayer(),
    "bias": pocketune.BiasAndLast(),
    "norm": pocketune.NormAndLast(),
    "blocks (top 3)": pocketune.TopBlocks(3),
    "mobiletl (top 3)": pocketune.MobileTL(3),
    "tinytl L": TinyTL(bias=False),
    "tinytl L+B": TinyTL(),
    "repnet": pocketune.RepNet(),
    "blocks + gradfilter": pocketune.TopBlocks(3) + pocketune.GradientFilter(2, "trained"),
    "full": pocketune.FullFineTune(),
}
EPOCHS = {"flowers": 5, "flower_photos": 2, "cifar10": 2}


class Bench:
    """Kits of one pretrained network, and their accuracies."""

    def __init__(self, data: Path, name: str, sets: set[str], scratch: Path) -> None:
        self.weights = weights_file(data, name)
        self.made_for = NETWORKS[name]
        self.scratch = scratch
        self.sets = {photos: unpack(data, photos, scratch / photos) for photos in sets}

    def fill(self, result: dict[str, Any], method: Method, photos: str, seeds: int) -> None:
        """Measure the missing parts of a method's result, for one set of photos."""
        if "peak" not in result:
            result["peak"] = self.peak(method)
        rates, scores = result.setdefault("rates", {}), result["top1"]
        if photos not in rates:
            rates[photos] = self.best_rates(method, photos)
            scores[photos] = []
        missing = range(len(scores[photos]), seeds)
        if missing:
            kit, epochs = self.kit(method, self.sets[photos]), EPOCHS[photos]
            lr, head_lr = rates[photos]
            scores[photos] += [
                self.accuracy(
                    kit, self.sets[photos], epochs=epochs, lr=lr, head_lr=head_lr, seed=seed
                )
                for seed in missing
            ]

    def kit(self, method: Method, photos: Path) -> Path:
        """A new kit for these photos."""
        kit = Path(tempfile.mkdtemp(dir=self.scratch)) / "kit"
        self.made_for.kit(kit, method, self.weights, photos)
        return kit

    def accuracy(
        self, kit: Path, photos: Path, *, held_out: bool = False, **settings: Any
    ) -> float:
        """Top-1 in percent on the test photos, or on a fifth of the others."""
        out = Path(tempfile.mkdtemp(dir=self.scratch)) / "run"
        settings |= {"val_fraction": 0.2 if held_out else 0.0, "checkpoint_seconds": None}
        result = pocketune.train(kit, photos / "train", out=out, progress=Silent(), **settings)
        return 100 * pocketune.evaluate(result.run, None if held_out else photos / "test").top1

    def best_rates(self, method: Method, photos: str) -> tuple[float, float]:
        """The rates of network and classifier that do best on held-out photos, other seeds."""
        kit = self.kit(method, self.sets[photos])
        settings = {"epochs": EPOCHS[photos], "seed": 100, "held_out": True}

        def score(lr: float, head_lr: float) -> float:
            return self.accuracy(kit, self.sets[photos], lr=lr, head_lr=head_lr, **settings)

        if isinstance(method, pocketune.LastLayer):
            lr = climb(lambda rate: score(rate, rate))
            return lr, lr
        middle = RATES[len(RATES) // 2]
        lr = climb(lambda rate: score(rate, middle))
        return lr, climb(lambda rate: score(lr, rate))

    def peak(self, method: Method) -> float:
        """Peak megabytes of a process that trains on the flowers."""
        kit = self.kit(method, self.sets["flowers"])
        return kit_peak(kit, self.sets["flowers"] / "train", kit.with_name("run"))


def climb(score: Callable[[float], float]) -> float:
    """The rate with the best score, from the middle up and down as long as it improves."""
    place, known = len(RATES) // 2, cache(lambda place: score(RATES[place]))
    for step in (1, -1):
        while 0 <= place + step < len(RATES) and known(place + step) > known(place):
            place += step
    return RATES[place]


def publish(name: str, results: dict[str, dict[str, Any]], seeds: int) -> None:
    """Write the finished rows of the table, since a row takes minutes."""
    made_for = NETWORKS[name]
    sets = [photos for photos in EPOCHS if any(photos in r["top1"] for r in results.values())]
    rows = []
    for method in (method for method in METHODS if method in results):
        result = results[method]
        row = [method, f"{result['peak']:.0f}"]
        for photos in sets:
            rates = result.get("rates", {}).get(photos)
            row += [spread(result["top1"].get(photos)), " / ".join(f"{r:g}" for r in rates or [])]
        rows.append(row)
    note = (
        f"{name} ({made_for.network}, {made_for.size} px), batch {BATCH}, Adam, cosine to 0, "
        f"epochs {EPOCHS}. Peak resident memory of a whole process that trains the kit. Top-1 in "
        f"percent on the test photos after the last step, mean ± standard deviation of {seeds} "
        "seeds (order, crops). Beside it, the rates of network and classifier, chosen on a fifth "
        "of the set's own training photos; rows without rates are older: a classifier drawn at "
        "random, one rate for all sets. 240 test photos of 12 flowers, 500 of flower_photos, "
        "1,000 of CIFAR-10 (2,000 to train on, enlarged from 32 px)."
    )
    keep(f"accuracy_{name}", results)
    columns = [column for photos in sets for column in (photos, "rates")]
    lines = table(["method", "peak process MB", *columns], rows)
    write(f"accuracy_{name}", f"The methods on real photos: {name}", f"{note}\n\n{lines}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--photos", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    parser.add_argument("--fresh", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    results = {} if options.fresh else kept(f"accuracy_{options.network}")
    with tempfile.TemporaryDirectory() as scratch:
        sets = {"flowers", *options.photos}  # the memory is that of the flowers
        bench = Bench(options.data, options.network, sets, Path(scratch))
        for photos in options.photos:
            for method in options.methods:
                result = results.setdefault(method, {"top1": {}})
                bench.fill(result, METHODS[method], photos, options.seeds)
                publish(options.network, results, options.seeds)


if __name__ == "__main__":
    main()
