"""TinyTL's table 4, made small: group norm with standardized kernels, and frozen batch norm.

    python benchmarks/bench_group_norm.py [--data FOLDER] [--size 64] [--photos 500]
        [--follow 8] [--epochs 3] [--rows last ...] [--batches 8 1] [--runs runs] [--fresh]

Two networks come from the same weights of mbv2-w0.35, whose norms are batch norms. One becomes a
network of group norms and standardized kernels: it first follows the blocks of the original on
photos of imagenette, flower_photos and CIFAR-10. Then both get lite residual modules and follow the
predictions of the original on the same photos. This is the pretraining: thousands of photos without
labels where the paper has ImageNet. The second network keeps its batch norms, on fixed statistics
in the transfer.

Both are transferred to 12 kinds of flowers, in PyTorch with Adam and a cosine to zero, from a
classifier that is computed from the photos. Each row has its own rate, the best of a few on a fifth
of the training photos after as many epochs, or after half an epoch of single images. For the row
of random modules, those of the pretrained network are reset. The table has the accuracy on the test
photos after the last step, and that of the computed classifier before the first one. Finished parts
are kept in `--runs`, so that a stopped script goes on; `--fresh` discards them. The script is
skipped if the data are missing.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bench_repnet_accuracy import imagenette
from data import parse, unpack, unpack_cifar10
from pocketune.data import ImageDataset, Loader, load_splits
from pocketune.device.head import fit_head
from pocketune.layers import LiteResidual
from pocketune.methods import (
    FullFineTune,
    LastLayer,
    Method,
    NormAndLast,
    TinyTL,
    final_plan,
)
from pocketune.networks import anatomy, normalize
from pocketune.pruning import Recipe, retrain
from pocketune.tasks import Classification
from pocketune.weights import create_network, restore_batch_norm, sample_batches
from pretrained import NETWORKS, weights_file
from report import table, write

NAME = "mbv2-w0.35"
RATES = {8: (1e-4, 3e-4, 1e-3), 1: (3e-6, 1e-5, 3e-5, 1e-4, 3e-4)}
"""By the number of images in a step."""
NORMS = {"group norm": {"norm": "group", "standardized": True}, "frozen batch norm": {}}
ROWS: dict[str, tuple[Method, bool]] = {  # the method, and whether the modules are drawn anew
    "last": (LastLayer(), False),
    "random L+B": (TinyTL(), True),
    "L+B": (TinyTL(), False),
    "norm+last": (NormAndLast(), False),
    "full": (FullFineTune(), False),
}
REPLACED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "norms": {"norm": "group"},
    "norms and kernels": {"norm": "group", "standardized": True},
}
"""What a network that loads the weights has in other kinds."""
Batches = list[tuple[Tensor, Tensor]]


class Photos:
    """Photos as the network sees them, each epoch's crops decoded once."""

    def __init__(self, folder: Path, size: int) -> None:
        train = load_splits(folder / "train", val_fraction=0.0).train
        places = [np.flatnonzero(train.labels == label) for label in np.unique(train.labels)]
        fifth = [int(p) for part in places for p in part[: len(part) // 5]]
        rest = [int(p) for part in places for p in part[len(part) // 5 :]]
        self.size, self.labeled = size, train.labeled
        self.sets = {
            "train": train,
            "four fifths": train.subset(rest),
            "a fifth": train.subset(fifth),
            "test": load_splits(folder / "test", val_fraction=0.0).train,
        }
        self._kept: dict[tuple[str, int | None], tuple[Any, Any]] = {}

    def whole(self, name: str, epoch: int | None = None) -> tuple[Any, Any]:
        """All pixels and labels of a set: the crops of an epoch, or their centers."""
        if (name, epoch) not in self._kept:
            photos = self.sets[name]
            loader = Loader(photos, size=self.size, batch=1, train=epoch is not None, seed=0)
            found = list(loader.epoch(epoch or 0))
            images, labels = ([getattr(b, n) for b in found] for n in ("images", "labels"))
            self._kept[name, epoch] = np.concatenate(images), np.concatenate(labels)
        return self._kept[name, epoch]


def pretrain(norm: str, options: argparse.Namespace, photos: ImageDataset, runs: Path) -> Path:
    """The file of a network with modules, pretrained on these photos."""
    made_for, recipe = NETWORKS[NAME], Recipe(batch=32, size=options.size)
    out = runs / f"{norm.replace(' ', '_')}.safetensors"
    progress = out.with_suffix(".progress.safetensors")
    if out.exists() and not progress.exists():
        return out
    sizes = {"width": made_for.width, "padding": made_for.padding}
    file = weights_file(options.data, NAME)
    teacher = create_network(made_for.network, weights=file, **sizes)
    restore_batch_norm(teacher, sample_batches(teacher, photos, size=options.size))
    start: nn.Module | Path = teacher
    if norm == "group norm":
        start = runs / "followed.safetensors"
        student = create_network(made_for.network, weights=teacher, **sizes, **NORMS[norm])
        follow = replace(recipe, follow="blocks", epochs=options.follow)
        retrain(student, photos, start, recipe=follow, teacher=teacher, accelerator="cpu")
    torch.manual_seed(0)  # a run that was stopped goes on with the same modules only
    network = TinyTL().insert_modules(create_network(made_for.network, weights=start, **sizes))
    follow = replace(recipe, epochs=options.epochs)
    retrain(network, photos, out, recipe=follow, teacher=teacher, accelerator="cpu")
    return out


def unlabeled(options: argparse.Namespace, scratch: Path) -> ImageDataset:
    """The photos of the pretraining."""
    imagenette(options.data, scratch / "imagenette")
    unpack(options.data, "flower_photos", scratch / "flower_photos")
    unpack_cifar10(options.data / "cifar10", scratch / "cifar10", options.photos)
    folder = scratch / "together"
    folder.mkdir()
    for classes in scratch.glob("*/train/*"):
        classes.rename(folder / classes.name)
    return load_splits(folder, val_fraction=0.0).train


def untrained(options: argparse.Namespace, photos: ImageDataset, flowers: Photos) -> dict[str, Any]:
    """Scores with a classifier from the flowers, before any training, by what is replaced."""
    made_for = NETWORKS[NAME]
    plain: dict[str, Any] = {"width": made_for.width, "padding": made_for.padding}
    plain["classes"] = len(flowers.labeled.classes)
    file = weights_file(options.data, NAME)
    network = create_network(made_for.network, weights=file, **plain)
    restore_batch_norm(network, sample_batches(network, photos, size=options.size))
    scores = {}
    for what, norms in REPLACED.items():
        other = create_network(made_for.network, weights=network, **plain, **norms)
        fit_classifier(other, flowers, "train")
        scores[what] = accuracy(other, *flowers.whole("test"))
    return scores


def adapted(file: Path, row: str, classes: int) -> nn.Module:
    """The pretrained network, ready for a row of the table; statistics of norms are fixed."""
    method, anew = ROWS[row]
    made_for = NETWORKS[NAME]
    torch.manual_seed(0)
    network = create_network(made_for.network, weights=file, width=made_for.width, classes=classes)
    if anew:
        for module in network.modules():
            if isinstance(module, LiteResidual):
                module.reset_parameters()
    plan = replace(final_plan(method, network), batch_norms=frozenset())
    plan.apply(network, frozen_bits=32)
    return network


def fit_classifier(network: nn.Module, photos: Photos, name: str) -> None:
    """Set the classifier to the one that the set's own photos give."""
    task = Classification(photos.labeled.classes, ("weight", "bias"))
    images, labels = photos.whole(name)
    layer = network.get_submodule(anatomy(network).classifier[-1])
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    predict(network, images)
    hook.remove()
    head = fit_head(lambda: iter([(torch.cat(seen).numpy(), labels)]), task)
    assert head is not None, "a classification has a closed form"
    with torch.no_grad():
        layer.get_parameter("weight").copy_(torch.from_numpy(head.weight))
        layer.get_parameter("bias").copy_(torch.from_numpy(head.bias))


def predict(network: nn.Module, images: Any) -> Tensor:
    """Logits of images, uint8 (N, H, W, 3)."""
    network.eval()
    with torch.no_grad():
        parts = [network(normalize(network, part)) for part in np.array_split(images, 16)]
    return torch.cat(parts)


def accuracy(network: nn.Module, images: Any, labels: Any) -> float:
    """Top-1 in percent."""
    return 100 * float((predict(network, images).argmax(1).numpy() == labels).mean())


def transfer(
    network: nn.Module, photos: Photos, name: str, *, rate: float, batch: int, epochs: float
) -> None:
    """Train on a set of photos with Adam and a cosine to zero, in place."""
    fit_classifier(network, photos, name)
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=rate)
    an_epoch = len(photos.sets[name]) // batch
    steps = round(epochs * an_epoch)
    network.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        epoch, place = divmod(step, an_epoch)
        images, labels = photos.whole(name, epoch)
        part = slice(place * batch, (place + 1) * batch)
        logits = network(normalize(network, images[part]))
        loss = functional.cross_entropy(logits, torch.from_numpy(labels[part]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def measure(
    file: Path, row: str, batch: int, photos: Photos, options: argparse.Namespace
) -> dict[str, Any]:
    """A row's rate, chosen on a fifth of the photos, and its score on the test photos."""
    classes, tried = len(photos.labeled.classes), {}
    epochs, trial = (options.epochs, options.epochs) if batch > 1 else (1, 0.5)
    for rate in RATES[batch]:
        network = adapted(file, row, classes)
        transfer(network, photos, "four fifths", rate=rate, batch=batch, epochs=trial)
        tried[rate] = accuracy(network, *photos.whole("a fifth"))
    best = max(tried, key=lambda rate: tried[rate])
    network = adapted(file, row, classes)
    transfer(network, photos, "train", rate=best, batch=batch, epochs=epochs)
    score = accuracy(network, *photos.whole("test"))
    return {"rate": best, "top1": score, "tried": tried}


def start(file: Path, photos: Photos) -> float:
    """The score of the classifier that every row starts from, on the pretrained network."""
    network = adapted(file, "last", len(photos.labeled.classes))
    fit_classifier(network, photos, "train")
    return accuracy(network, *photos.whole("test"))


def publish(results: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """The table of the rows that are there."""
    starts = [f"{results['starts'][norm]:.1f}" for norm, _ in product(NORMS, (8, 1))]
    rows = [["nothing", *starts]]
    for row in ROWS:
        cells = [results.get(f"{n}, {row}, {b}") for n, b in product(NORMS, (8, 1))]
        rows.append([row, *(f"{c['top1']:.1f} ({c['rate']:g})" if c else "" for c in cells)])
    note = (
        f"MobileNetV2 0.35 at {options.size} px, one seed; 719 photos of 12 flowers to train on, "
        "240 to test, so that a difference of 4 points is chance. Top-1 in percent after "
        f"{options.epochs} epochs with batch 8 or one with batch 1, beside it the rate, chosen on "
        "a fifth of the training photos after as many epochs or half of one; trained nothing: the "
        "classifier computed from the photos. "
        "Pretraining, without labels: 1,000 photos of imagenette, "
        f"2,000 of flower_photos and {10 * options.photos:,} of CIFAR-10, enlarged from 32 px; "
        "group norm follows the blocks of the network of batch norms for "
        f"{options.follow} epochs, then both follow its predictions with their modules for "
        f"{options.epochs} epochs. That is far from ImageNet: compare the rows of a column."
    )
    columns = ["trained", *(f"{n}, batch {b}" for n, b in product(NORMS, (8, 1)))]
    before = (
        "Before any training, with the weights of batch norms in a network of other norms or "
        "kernels, and a classifier computed from the photos:"
    )
    scores = [[what, f"{score:.1f}"] for what, score in results["untrained"].items()]
    replaced = table(["replaced", "top-1"], scores)
    text = f"{note}\n\n{table(columns, rows)}\n\n{before}\n\n{replaced}"
    write("group_norm", "TinyTL's table 4, made small", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=64, help="pixels of an image")
    parser.add_argument("--photos", type=int, default=500, help="of each class of CIFAR-10")
    parser.add_argument("--follow", type=int, default=8, help="epochs that follow the blocks")
    parser.add_argument("--epochs", type=int, default=3, help="epochs of every other training")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 1], help="images in a step")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of finished parts")
    parser.add_argument("--fresh", action="store_true", help="discard finished parts")
    options = parse(parser)
    runs = options.runs / "group_norm"
    if options.fresh:
        shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True, exist_ok=True)
    kept = runs / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        source = unlabeled(options, Path(scratch) / "photos")
        files = {norm: pretrain(norm, options, source, runs) for norm in NORMS}
        flowers = Photos(unpack(options.data, "flowers", Path(scratch) / "flowers"), options.size)
        if "untrained" not in results:
            results["untrained"] = untrained(options, source, flowers)
            kept.write_text(json.dumps(results))
        if "starts" not in results:
            results["starts"] = {norm: start(files[norm], flowers) for norm in NORMS}
            kept.write_text(json.dumps(results))
        for batch, row, norm in product(options.batches, options.rows, NORMS):
            key = f"{norm}, {row}, {batch}"
            if key in results:
                continue
            began = time.process_time()
            results[key] = measure(files[norm], row, batch, flowers, options)
            kept.write_text(json.dumps(results))
            spent = time.process_time() - began
            print(f"{key}: {results[key]['top1']:.1f} ({spent:.0f} s of the CPU)", flush=True)
    publish(results, options)


if __name__ == "__main__":
    main()
