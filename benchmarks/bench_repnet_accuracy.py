"""The accuracy that pruning for memory costs, and that retraining recovers.

    python benchmarks/bench_repnet_accuracy.py [--data FOLDER] [--network mbv2-w0.35] [--seeds 4]

A network pretrained on ImageNet loses hidden channels of its first four blocks, by the paper's
ratios (30, 78, 46 and 46 %) or those that `--target` takes, the least active ones over
Imagenette's 700 training photos. It is retrained on the same photos, which takes no labels: all of
it, to follow the predictions of the unpruned one, or its first part, to follow that one's blocks.
Its accuracy is that on Imagenette's 500 photos of ImageNet's validation part, among all 1000
classes. Then Rep-Net is trained on two sets of flowers, on the whole and the pruned and retrained
networks (5 epochs, batch 8, Adam). The public code's rates, 2e-4 and 1e-3 for the side modules, are
too low for so few epochs: the rate is the one of bench_accuracy.py that did best on held-out
flowers. Results in the .json are kept; `--fresh` discards them. The script is skipped if the data
are missing. With the defaults it takes about half an hour on one core.
"""

from __future__ import annotations

import argparse
import copy
import csv
import io
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pocketune
from data import parse, unpack
from pocketune.comparison import Grid, compare
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.networks import normalize
from pocketune.papers.repnet import PRUNED
from pocketune.pruning import Recipe, plan_pruning
from pocketune.weights import sample_batches
from pocketune.weights.measured import create_measured
from pretrained import BATCH, NETWORKS, Pretrained, weights_file
from report import keep, kept, spread, table, write

EPOCHS = 5
RATE = 3e-3
SETS = ("flowers", "flower_photos")
FOLLOWED = ("predictions", "blocks")


def imagenette(data: Path, folder: Path) -> tuple[ImageDataset, ImageDataset, list[int]]:
    """Training and validation photos, and for each of their classes its number among 1000."""
    with zipfile.ZipFile(data / "imagenet" / "imagenette10_160.zip") as archive:
        archive.extractall(folder)
        listed = csv.DictReader(io.StringIO(archive.read("labels.csv").decode()))
        numbers = {row["wnid"]: int(row["imagenet_index"]) for row in listed}
    splits = load_splits(folder)
    assert splits.val is not None
    return splits.train, splits.val, [numbers[wnid] for wnid in splits.train.classes]


@torch.inference_mode()
def top1(network: nn.Module, photos: ImageDataset, numbers: list[int], size: int) -> float:
    """Percent of the photos whose class is the likeliest of all 1000."""
    network.eval()
    hits = 0
    for batch in Loader(photos, size=size, batch=32, train=False).epoch(0):
        wanted = torch.tensor(numbers)[torch.from_numpy(batch.labels)]
        hits += int((network(normalize(network, batch.images)).argmax(1) == wanted).sum())
    return 100 * hits / len(photos)


def choose(network: nn.Module, target: str, size: int) -> dict[str, float]:
    """Share of the hidden channels to remove: the paper's, or what a target takes."""
    return PRUNED if target == "paper" else plan_pruning(network, target, size=size).ratios


def peak(network: nn.Module, size: int) -> float:
    """MB that Rep-Net takes at its peak for one image, by the papers' rules."""
    adapted = pocketune.adapt(network, pocketune.RepNet())
    return pocketune.profile_memory(adapted, size=size).peak.peak_bytes / 1e6


def transfer(
    weights: Path, made_for: Pretrained, sets: dict[str, Path], seeds: int
) -> dict[str, list[float]]:
    """Top-1 on the test photos of each set after Rep-Net, once for each seed."""
    grid = Grid.from_dict(
        {
            "photos": [{"photos": str(path), "name": name} for name, path in sets.items()],
            "networks": [{**made_for.to_dict(weights), "batch": BATCH}],
            "methods": ["repnet"],
            "settings": {"epochs": EPOCHS, "val_fraction": 0.0, "lr": RATE},
            "seeds": seeds,
        }
    )
    with tempfile.TemporaryDirectory() as scratch:
        rows = compare(grid, scratch).rows
    return {row.photos: [100 * score for score in row.scores] for row in rows}


class Bench:
    """One network, whole and pruned, and its results."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.options, self.scratch = options, scratch
        self.made_for = made_for = NETWORKS[options.network]
        self.results = {} if options.fresh else kept(f"repnet_accuracy_{options.network}")
        self.train, self.val, self.numbers = imagenette(options.data, scratch / "imagenette")
        self.sets = {name: unpack(options.data, name, scratch / name) for name in SETS}
        self.whole = create_measured(
            made_for.network,
            **made_for.options(weights_file(options.data, options.network)),
            size=made_for.size,
            photos=self.train,
        )
        self.ratios = choose(self.whole, options.target, made_for.size)
        batches = sample_batches(self.whole, self.train, size=made_for.size)
        self.pruned = pocketune.prune(self.whole, self.ratios, batches=batches)

    def run(self) -> None:
        """Measure the missing results."""
        self.judge("whole", lambda: self.whole)
        self.judge("pruned", lambda: self.pruned, transferred=False)
        for follow in FOLLOWED:
            self.judge(f"pruned, following {follow}", partial(self.retrained, follow))

    def judge(self, label: str, make: Callable[[], nn.Module], transferred: bool = True) -> None:
        """Accuracy and memory of a network, and its accuracy after Rep-Net."""
        if label in self.results:
            return
        network, size = make(), self.made_for.size
        result: dict[str, Any] = {"imagenet": top1(network, self.val, self.numbers, size)}
        result["peak"] = peak(network, size)
        file = self.scratch / "judged.safetensors"
        pocketune.save_network(network, file)
        if transferred:
            result |= transfer(file, self.made_for, self.sets, self.options.seeds)
        self.results[label] = result
        keep(f"repnet_accuracy_{self.options.network}", self.results)
        print(label, result, flush=True)

    def retrained(self, follow: str) -> nn.Module:
        """The pruned network once it has followed the whole one."""
        network = copy.deepcopy(self.pruned)
        recipe = Recipe(epochs=self.options.retrain_epochs, size=self.made_for.size, follow=follow)
        pocketune.retrain(
            network,
            self.train,
            self.scratch / f"{follow}.safetensors",
            recipe=recipe,
            teacher=self.whole,
            accelerator="cpu",
        )
        return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--target", default="paper", help="'paper', 'cumulative' or a size")
    parser.add_argument("--retrain-epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--fresh", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, Path(scratch))
        bench.run()
    publish(options, bench.results, bench.ratios)


def publish(
    options: argparse.Namespace, results: dict[str, dict[str, Any]], ratios: dict[str, float]
) -> None:
    removed = ", ".join(f"{block} {ratio:.0%}" for block, ratio in ratios.items())
    before, after = results["whole"]["peak"], results["pruned"]["peak"]
    note = (
        f"{options.network} at {NETWORKS[options.network].size} px, ratios {options.target}: "
        f"without {removed} of the hidden channels the peak of one image falls from {before:.2f} "
        f"to {after:.2f} MB by the papers' rules. Retrained for {options.retrain_epochs} epochs on "
        f"700 photos without labels. Rep-Net: {EPOCHS} epochs, batch {BATCH}, learning rate "
        f"{RATE:g}; mean ± standard deviation of {options.seeds} seeds, after the last step."
    )
    rows = [
        [label, f"{result['imagenet']:.1f}", *(spread(result.get(name)) for name in SETS)]
        for label, result in results.items()
    ]
    header = ["network", "ImageNet top-1 %, 500 photos", *SETS]
    title = f"Pruning for memory, and accuracy: {options.network}"
    write(f"repnet_accuracy_{options.network}", title, f"{note}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
