"""Accuracy of the methods on real photos, with one short recipe for all.

    python benchmarks/bench_accuracy.py [--data FOLDER] [--network mbv2-w0.35] [--seeds 4]
        [--photos flowers ...] [--methods last mobiletl ...]

A network pretrained on ImageNet is fine-tuned as `pocketune train` does it: a kit is built from
the published weights, with 8-bit frozen layers where the method asks for them, and trained with
Adam and one cosine to zero. Each method has the learning rate, of three, that does best on a fifth
of the Flowers training photos that is held out for this alone. The accuracy is that of the last
step, on each set's own test photos; the memory is the peak of a fresh process that trains the kit
on the flowers. Results that stand in the .json are kept: a run can be broken off and gone on with;
`--anew` forgets them. Skipped where the data are not at hand.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow.parquet as parquet

import pocketune
from data import parse
from fresh import kit_peak
from pocketune.compiler.build import build_kit
from pocketune.data import load_splits
from pocketune.device.progress import Silent
from pocketune.methods import Method, TinyTL
from report import RESULTS, table, write

BATCH = 8
RATES = (3e-4, 1e-3, 3e-3)
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


@dataclass(frozen=True)
class Pretrained:
    """A file of published weights and what they were made for."""

    network: str
    width: float
    size: int
    padding: str = "symmetric"


NETWORKS = {
    "mbv2-w0.35": Pretrained("mobilenet_v2", 0.35, 128),
    "proxyless-w0.3": Pretrained("proxylessnas_mobile", 0.3, 128),
    "mcunet-5fps": Pretrained("mcunet_5fps", 1.0, 128),
    "mbv2-w1.0": Pretrained("mobilenet_v2", 1.0, 160, "same"),
}
EPOCHS = {"flowers": 5, "flower_photos": 2, "cifar10": 2}


def unpack(data: Path, name: str, folder: Path) -> Path:
    """A set of photos as `train` and `test` folders of class folders."""
    if name == "cifar10":
        for part, count in (("train", 2000), ("test", 1000)):
            rows = parquet.read_table(data / "cifar10" / f"cifar10_{part}.parquet")
            for number, row in enumerate(rows.slice(0, count).to_pylist()):
                path = folder / part / row["label_name"] / f"{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(row["image"])
    else:
        files = {"flowers": "oxford_flowers_12cls_224", "flower_photos": "flower_photos_5cls_160"}
        with zipfile.ZipFile(data / "classification" / f"{files[name]}.zip") as archive:
            archive.extractall(folder)
    return folder


class Bench:
    """Kits of one pretrained network, and their accuracies."""

    def __init__(self, data: Path, name: str, scratch: Path) -> None:
        self.weights = data / "weights" / f"{name}.float32.safetensors"
        self.made_for = NETWORKS[name]
        self.scratch = scratch

    def kit(self, method: Method, photos: Path) -> Path:
        """What `pocketune train` would build for these photos."""
        kit = Path(tempfile.mkdtemp(dir=self.scratch)) / "kit"
        build_kit(
            kit,
            network=self.made_for.network,
            method=method,
            weights=str(self.weights),
            width=self.made_for.width,
            padding=self.made_for.padding,
            size=self.made_for.size,
            batch=BATCH,
            photos=load_splits(photos / "train", val_fraction=0.0).train,
        )
        return kit

    def accuracy(self, kit: Path, train: Path, test: Path | None, **settings: Any) -> float:
        """Top-1 in percent on the test photos, or on a fifth of the others."""
        out = Path(tempfile.mkdtemp(dir=self.scratch)) / "run"
        settings |= {"val_fraction": 0.2 if test is None else 0.0, "checkpoint_seconds": None}
        result = pocketune.train(kit, train, out=out, progress=Silent(), **settings)
        return 100 * pocketune.evaluate(result.run, test).top1

    def best_rate(self, method: Method, flowers: Path) -> float:
        """The learning rate that does best on held-out photos of flowers, with another seed."""
        kit = self.kit(method, flowers)
        scores = {
            rate: self.accuracy(
                kit, flowers / "train", None, epochs=EPOCHS["flowers"], seed=100, lr=rate
            )
            for rate in RATES
        }
        return max(scores, key=lambda rate: scores[rate])

    def peak(self, method: Method, flowers: Path) -> float:
        """Peak megabytes of a process that trains on the flowers."""
        kit = self.kit(method, flowers)
        return kit_peak(kit, flowers / "train", kit.with_name("run"))


def publish(name: str, results: dict[str, dict[str, Any]], seeds: int) -> None:
    """Write the table as far as it has come: a row takes minutes."""
    made_for = NETWORKS[name]
    sets = [photos for photos in EPOCHS if any(photos in r["top1"] for r in results.values())]
    rows = []
    for method in (method for method in METHODS if method in results):
        result = results[method]
        scores = [_mean(result["top1"].get(photos)) for photos in sets]
        rows.append([method, f"{result['peak']:.0f}", f"{result['rate']:g}", *scores])
    note = (
        f"{name} ({made_for.network}, {made_for.size} px), batch {BATCH}, Adam, cosine to 0, "
        f"epochs {EPOCHS}. Peak resident memory of a whole process that trains the kit. Top-1 in "
        f"percent on the test photos after the last step, mean ± standard deviation of {seeds} "
        "seeds (classifier, order, crops). 240 test photos of 12 flowers, 500 of flower_photos, "
        "1,000 of CIFAR-10 (2,000 to train on, enlarged from 32 px)."
    )
    RESULTS.joinpath(f"accuracy_{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = table(["method", "peak process MB", "learning rate", *sets], rows)
    write(f"accuracy_{name}", f"The methods on real photos: {name}", f"{note}\n\n{lines}")


def _mean(scores: list[float] | None) -> str:
    if not scores:
        return ""
    return f"{mean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--photos", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    parser.add_argument("--anew", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    kept = RESULTS / f"accuracy_{options.network}.json"
    results: dict[str, dict[str, Any]] = {}
    if kept.is_file() and not options.anew:
        results = json.loads(kept.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options.data, options.network, Path(scratch))
        sets = {
            name: unpack(options.data, name, Path(scratch) / name)
            for name in {"flowers", *options.photos}
        }
        for photos in options.photos:
            for method in options.methods:
                result = results.setdefault(method, {"top1": {}})
                if "peak" not in result:
                    result["peak"] = bench.peak(METHODS[method], sets["flowers"])
                if "rate" not in result:
                    result["rate"] = bench.best_rate(METHODS[method], sets["flowers"])
                scores = result["top1"].setdefault(photos, [])
                if len(scores) < options.seeds:
                    kit = bench.kit(METHODS[method], sets[photos])
                    train, test = (sets[photos] / part for part in ("train", "test"))
                    scores += [
                        bench.accuracy(
                            kit, train, test, epochs=EPOCHS[photos], seed=seed, lr=result["rate"]
                        )
                        for seed in range(len(scores), options.seeds)
                    ]
                publish(options.network, results, options.seeds)


if __name__ == "__main__":
    main()
