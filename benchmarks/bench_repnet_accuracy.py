"""What pruning for memory costs in accuracy, and what retraining wins back.

    python benchmarks/bench_repnet_accuracy.py [--data FOLDER] [--network mbv2-w0.35] [--seeds 4]

A network pretrained on ImageNet loses hidden channels of its first four blocks, by the paper's
ratios (30, 78, 46 and 46 %) or those that ``--target`` takes, the least active ones over
Imagenette's 700 training photos. It is retrained on the same photos, which takes no labels: all of
it, to follow the predictions of the unpruned one, or its first part, to follow that one's blocks.
Its accuracy is that on Imagenette's 500 photos of ImageNet's validation part, among all 1000
classes. Then Rep-Net is trained on two sets of flowers, on the whole and the pruned and retrained
networks (5 epochs, batch 8, Adam). The paper's rates, 2e-4 and 1e-3 for the side modules, are too
low for so few epochs: the rate is the one of bench_accuracy.py that did best on held-out flowers.
Results that stand in the .json are kept; `--anew` forgets them. Skipped where the data are not at
hand. With the defaults about half an hour on one core.
"""

from __future__ import annotations

import argparse
import copy
import csv
import io
import json
import tempfile
import zipfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import nn

import pocketune
from bench_accuracy import NETWORKS, Pretrained, unpack
from data import parse
from pocketune.compiler.build import build_kit, create_measured, spread_batches
from pocketune.compiler.trace import normalize
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.progress import Silent
from pocketune.pruning import plan_pruning
from pocketune.pruning.retraining import Recipe
from pocketune.tables.repnet import PRUNED
from report import RESULTS, table, write

BATCH, EPOCHS = 8, 5
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
    norm: Any = network.normalization
    network.eval()
    hits = 0
    for batch in Loader(photos, size=size, batch=32, train=False).epoch(0):
        images = normalize(torch.from_numpy(batch.images), norm.mean, norm.std)
        wanted = torch.tensor(numbers)[torch.from_numpy(batch.labels)]
        hits += int((network(images).argmax(1) == wanted).sum())
    return 100 * hits / len(photos)


def choose(network: nn.Module, target: str, size: int) -> dict[str, float]:
    """Share of the hidden channels to remove: the paper's, or what a target takes."""
    return PRUNED if target == "paper" else plan_pruning(network, target, size=size).ratios


def peak(network: nn.Module, size: int) -> float:
    """MB that Rep-Net takes at its peak for one image, by the papers' rules."""
    adapted = pocketune.adapt(network, pocketune.RepNet())
    return pocketune.profile_memory(adapted, size=size).peak.peak_bytes / 1e6


def transfer(weights: Path, made_for: Pretrained, photos: Path, seeds: int) -> list[float]:
    """Top-1 on the test photos after Rep-Net, once for each seed."""
    scores = []
    with tempfile.TemporaryDirectory() as scratch:
        kit = Path(scratch) / "kit"
        build_kit(
            kit,
            network=made_for.network,
            method=pocketune.RepNet(),
            weights=str(weights),
            width=made_for.width,
            padding=made_for.padding,
            size=made_for.size,
            batch=BATCH,
            photos=load_splits(photos / "train", val_fraction=0.0).train,
        )
        for seed in range(seeds):
            result = pocketune.train(
                kit,
                photos / "train",
                out=Path(scratch) / f"run{seed}",
                epochs=EPOCHS,
                seed=seed,
                val_fraction=0.0,
                checkpoint_seconds=None,
                progress=Silent(),
                lr=RATE,
            )
            scores.append(100 * pocketune.evaluate(result.run, photos / "test").top1)
    return scores


def spread(scores: list[float] | None) -> str:
    if not scores:
        return ""
    return f"{mean(scores):.1f}" + (f" ± {stdev(scores):.1f}" if len(scores) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="mbv2-w0.35")
    parser.add_argument("--target", default="paper", help="'paper', 'cumulative' or a size")
    parser.add_argument("--retrain-epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--anew", action="store_true", help="keep nothing of the .json")
    options = parse(parser)
    made_for = NETWORKS[options.network]
    weights = options.data / "weights" / f"{options.network}.float32.safetensors"
    kept = RESULTS / f"repnet_accuracy_{options.network}.json"
    results: dict[str, dict[str, Any]] = {}
    if kept.is_file() and not options.anew:
        results = json.loads(kept.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train, val, numbers = imagenette(options.data, folder / "imagenette")
        whole = create_measured(
            made_for.network,
            weights=str(weights),
            width=made_for.width,
            padding=made_for.padding,
            size=made_for.size,
            photos=train,
        )
        ratios = choose(whole, options.target, made_for.size)
        pruned = pocketune.prune(whole, ratios, images=spread_batches(whole, train, made_for.size))
        sets = {name: unpack(options.data, name, folder / name) for name in SETS}

        def judge(label: str, network: nn.Module, transferred: bool = True) -> None:
            result = results.setdefault(label, {})
            result["imagenet"] = top1(network, val, numbers, made_for.size)
            result["peak"] = peak(network, made_for.size)
            file = folder / "judged.safetensors"
            pocketune.save_network(network, file)
            for name in SETS if transferred else ():
                result[name] = transfer(file, made_for, sets[name], options.seeds)
            kept.write_text(json.dumps(results, indent=1) + "\n")
            print(label, result, flush=True)

        if "whole" not in results:
            judge("whole", whole)
        if "pruned" not in results:
            judge("pruned", pruned, transferred=False)
        for follow in FOLLOWED:
            label = f"pruned, following {follow}"
            if label not in results:
                again = copy.deepcopy(pruned)
                recipe = Recipe(epochs=options.retrain_epochs, size=made_for.size, follow=follow)
                out = folder / f"{follow}.safetensors"
                pocketune.retrain(
                    again, train, out, recipe=recipe, teacher=whole, accelerator="cpu"
                )
                judge(label, again)
    publish(options, results, ratios)


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
